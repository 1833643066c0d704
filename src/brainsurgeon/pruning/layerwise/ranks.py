"""A group of layers and several ranks: each solves its share of the rows, or some of the layers, and all get all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from brainsurgeon.distributed import (
    broadcast,
    gather_rows,
    rank,
    shard_sizes,
    sum_over_ranks,
    world_size,
)
from brainsurgeon.engine.layer.baselines import wanda_scores
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.solve import LayerProblem, LayerSolution
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.pruning.layerwise.solvers import LayerSolver
from brainsurgeon.pruning.ranks import check_alike
from brainsurgeon.samples.batches import Batch


def check_ranks(model: nn.Module, batches: Sequence[Batch]) -> None:
    """Refuse ranks that were given different models or samples, or more ranks than batches."""
    check_alike(model, batches)
    if world_size() > 1 and len(batches) < world_size():
        raise BrainsurgeonError(
            f"{len(batches)} batches of calibration samples cannot be shared out among {world_size()} ranks: give more "
            "samples, or start fewer ranks"
        )


def agreed_groups(layers: Sequence[LinearMap], groups: list[list[LinearMap]]) -> list[list[LinearMap]]:
    """Return the groups that the first rank found: what a batch calls may depend on the batch."""
    if world_size() == 1:
        return groups
    numbers = {layer.name: number for number, layer in enumerate(layers)}
    places = torch.full((len(layers), 2), -1)
    for number, group in enumerate(groups):
        for place, layer in enumerate(group):
            places[numbers[layer.name]] = torch.tensor([number, place])
    found: dict[int, dict[int, LinearMap]] = {}
    for layer, (number, place) in zip(layers, broadcast(places, 0).tolist(), strict=True):
        if number >= 0:
            found.setdefault(number, {})[place] = layer
    return [[found[number][place] for place in sorted(found[number])] for number in sorted(found)]


def owners(group: Sequence[LinearMap], loads: list[float] | None = None) -> dict[str, int]:
    """Share layers out among the ranks, the largest first, each to the rank with the least work; add to the loads."""
    loads = [0.0] * world_size() if loads is None else loads
    found = {}
    for layer in sorted(group, key=_work, reverse=True):
        found[layer.name] = min(range(len(loads)), key=loads.__getitem__)
        loads[found[layer.name]] += _work(layer)
    return found


def solve_group(
    solver: LayerSolver, pattern: Pattern, group: Sequence[LinearMap], problem_of: Callable[[LinearMap], LayerProblem]
) -> Iterator[LayerSolution]:
    """Yield the solution of each layer of a group, the same bits on every rank."""
    if world_size() == 1:
        yield from (solver(problem_of(layer)) for layer in group)
        return
    owner = owners([layer for layer in group if not _rows_apart(layer, pattern)])
    own = {layer.name: solver(problem_of(layer)) for layer in group if owner.get(layer.name) == rank()}
    for layer in group:
        if layer.name in owner:
            yield _sent(layer, own.pop(layer.name, None), owner[layer.name])
        else:
            yield _by_rows(solver, problem_of(layer))


def _work(layer: LinearMap) -> float:
    return float(layer.weight.numel()) * layer.rows(layer.weight).shape[-1]


def _rows_apart(layer: LinearMap, pattern: Pattern) -> bool:
    """Say whether the rows of a layer can be solved apart, and every rank gets some."""
    groups, rows, _ = layer.rows(layer.weight).shape
    pieces = rows // pattern.block[0] if groups == 1 else groups
    return (pattern.keep_of is not None or pattern.per == "row") and pieces >= world_size()


def _by_rows(solver: LayerSolver, problem: LayerProblem) -> LayerSolution:
    """Solve this rank's rows (or groups of a convolution), and gather those of all."""
    grouped = problem.weights.dim() == 3
    high = 1 if grouped else problem.pattern.block[0]
    sizes = [size * high for size in shard_sizes(len(problem.weights) // high)]
    # Where a layer's count does not divide by its rows, the first scores say which rows give one more.
    first = problem.pattern.prune_lowest(wanda_scores(problem.weights, problem.moments, problem.squares), problem.count)
    counts = broadcast(torch.stack([part.sum() for part in first.split(sizes)]), 0)
    part = slice(sum(sizes[: rank()]), sum(sizes[: rank() + 1]))
    found = solver(
        replace(
            problem,
            weights=problem.weights[part],
            moments=problem.moments[part] if grouped else problem.moments,
            count=int(counts[rank()]),
            scales=None if problem.scales is None else problem.scales[part],
            linear=None if problem.linear is None else problem.linear[part],
            squares=problem.squares[part] if grouped and problem.squares is not None else problem.squares,
            add_up=sum_over_ranks,
            mean_scale=None if problem.scales is None else problem.scales.double().mean(),
        )
    )
    weights, pruned = gather_rows(found.weights, sizes), gather_rows(found.pruned, sizes)
    return replace(found, weights=weights, pruned=pruned, error=_number(found.error))


def _sent(layer: LinearMap, found: LayerSolution | None, source: int) -> LayerSolution:
    """Send a solution from the rank that has it to all others."""
    shape, dtype = layer.rows(layer.weight).shape, torch.promote_types(layer.weight.dtype, torch.float32)
    if found is None:
        weights = torch.empty(shape, dtype=dtype, device=layer.weight.device)
        found = LayerSolution(weights, torch.empty(shape, dtype=torch.bool, device=weights.device), 0.0)
    weights = broadcast(found.weights.to(dtype).reshape(shape), source)
    return replace(
        found, weights=weights, pruned=broadcast(found.pruned.reshape(shape), source), error=_number(found.error)
    )


def _number(own: float) -> float:
    """Return the sum of a number over all ranks."""
    return float(sum_over_ranks(torch.tensor(own, dtype=torch.float64)))
