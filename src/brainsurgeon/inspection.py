"""What a run would prune, and what it would take on this machine, found out before anything runs."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .batches import Batch, SampleStream, batch_size, regroup
from .blocks import make_blocks
from .gradients import choose_rows
from .loss import BatchLoss, check_loss
from .mask import make_budget
from .memory import DoesNotFitError, available_bytes, check_memory, memory_needs
from .recipe import Recipe
from .sample_loss import BATCH, GRADIENT_BATCHES, ROUND_FLOPS, SEARCH_FLOPS, SampleLoss
from .target import Target
from .weights import PrunableWeights, find_weights

PATIENCE = 2.0
"""Seconds that a measurement may take, once it has run twice."""
DRAWS, STEPS, LADDER = 25, 50, 6
"""Masks that race after Algorithm 2, rounds of a search at most, masks compared in a round."""


@dataclass(frozen=True)
class LayerPlan:
    """One parameter: how many of its weights magnitude pruning would take, None where it is left alone."""

    name: str
    shape: tuple[int, ...]
    size: int
    pruned: int | None


@dataclass(frozen=True)
class Inspection:
    """A run, foreseen."""

    layers: tuple[LayerPlan, ...]
    size: int
    count: int
    blocks: int
    widest: int
    memory: dict[str, int]
    free: int | None
    seconds: dict[str, float]
    problem: str = ""


def inspect(recipe: Recipe, target: Target, timed: bool = True) -> Inspection:
    """Look at the model, and time a few gradients and losses where the method needs them and `timed` is set."""
    settings = recipe.settings()
    weights = find_weights(target.model, settings.include, settings.exclude)
    device = torch.device(settings.device or target.model.get_parameter(weights.names[0]).device)
    methods = recipe.make_methods()
    curvature = any(method.uses_curvature for method in methods.values())
    blocks = make_blocks(settings.blocks, weights, settings.num_gradients)
    model_bytes = sum(tensor.nbytes for tensor in target.model.state_dict().values())
    memory = memory_needs(weights, model_bytes, settings)
    problem = ""
    try:
        check_memory(weights, model_bytes, settings, device)
    except DoesNotFitError as error:
        problem = str(error) if curvature else ""
    return Inspection(
        layers=_plans(recipe, target, weights),
        size=weights.size,
        count=make_budget("global", recipe.sparsities[0], [("", 0, weights.size)], torch.device("cpu")).total,
        blocks=len(blocks),
        widest=max(block.stop - block.start for block in blocks),
        memory=memory if curvature else {key: value for key, value in memory.items() if key.startswith("copies")},
        free=available_bytes(device),
        seconds=_times(recipe, target, weights, device) if timed and curvature else {},
        problem=problem,
    )


def _plans(recipe: Recipe, target: Target, weights: PrunableWeights) -> tuple[LayerPlan, ...]:
    values = weights.flatten(target.model).abs().cpu()
    layers = [(layer.name, layer.offset, layer.size) for layer in weights.layers]
    pruned = make_budget(recipe.budget, recipe.sparsities[0], layers, torch.device("cpu")).lowest(values)
    counts = {layer.name: int(pruned[layer.columns].sum()) for layer in weights.layers}
    return tuple(
        LayerPlan(name, tuple(parameter.shape), parameter.numel(), counts.get(name))
        for name, parameter in target.model.named_parameters()
    )


def _times(recipe: Recipe, target: Target, weights: PrunableWeights, device: torch.device) -> dict[str, float]:
    """Time a few gradients and a few losses, and multiply."""
    settings = recipe.settings()
    group = settings.gradient_batch
    loss = BatchLoss(copy.deepcopy(target.model).to(device).eval().requires_grad_(False), target.loss)
    stream = SampleStream(target.data, torch.Generator().manual_seed(settings.seed), device, keep=1)
    batches = list(regroup(stream.take(max(2 * BATCH, 8 * group)), max(BATCH, group)))
    check_loss(loss, batches[0])
    row = _seconds_a_row(loss, weights, batches[0], group, device)
    with torch.no_grad():
        batch = _median_time(lambda: loss(batches[0]), device) * BATCH / batch_size(batches[0])
    sample = SampleLoss(loss, weights, weights.flatten(loss.model), batches)
    found = {"gradients": row * settings.num_gradients}
    for name, method in recipe.make_methods().items():
        if getattr(method.selection, "uses_loss", False):
            searched = _batches_of_search(settings.loss_samples, sample.flops_per_batch())
            found[f"{name}, at most about"] = searched * batch * len(recipe.sparsities)
    return found


def _batches_of_search(samples: int, flops: float) -> float:
    """Return how many batches the sample loss is evaluated on by Algorithm 2 and a search, roughly and at most."""
    judging = max(1, samples // BATCH // 2)

    def race(candidates: int) -> float:
        first = max(1, min(judging, int(ROUND_FLOPS / (flops * candidates))))
        return candidates * first + sum(
            max(1, candidates >> k) * (first << k - 1) for k in (1, 2) if first << k <= judging
        )

    gradient = max(GRADIENT_BATCHES, min(judging, int(ROUND_FLOPS / (flops * 3))))
    rounds = max(8, min(STEPS, int(SEARCH_FLOPS / (3 * gradient * flops))))
    return race(DRAWS) + rounds * (3 * gradient + race(LADDER))


def _seconds_a_row(loss: BatchLoss, weights: PrunableWeights, batch: Batch, group: int, device: torch.device) -> float:
    from .gradients import _split_groups

    parameters = {f"model.{name}": loss.model.get_parameter(name).detach() for name in weights.names}
    groups = _split_groups(batch, group)
    rows, _ = choose_rows(loss, parameters, groups)
    with torch.no_grad():
        return _median_time(lambda: rows(parameters, groups), device) / batch_size(groups)


def _median_time(work: Callable[[], object], device: torch.device) -> float:
    """Run something a few times, the first not counted, and return the median of its times."""
    work()
    times: list[float] = []
    while len(times) < 2 or (sum(times) < PATIENCE and len(times) < 9):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]
