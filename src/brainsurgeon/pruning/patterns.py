"""What a pattern makes of a budget: the counts that it allows, and the layers that it must divide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from brainsurgeon.engine.budget import Budget, Share, as_budget
from brainsurgeon.engine.layer.patterns import Pattern, parse_pattern
from brainsurgeon.engine.patterned import PatternedBudget, PatternLayer
from brainsurgeon.engine.problem import Problem
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.weights import Layer

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery


def as_pattern(pattern: Pattern | str) -> Pattern:
    """Return a pattern that was given as one, or in words."""
    if not isinstance(pattern, str | Pattern):
        raise BrainsurgeonError(f'a pattern is a word such as "row", "2:4" or "4x4", got {pattern!r}')
    return parse_pattern(pattern) if isinstance(pattern, str) else pattern


def is_free(pattern: Pattern) -> bool:
    """Say whether any mask is allowed."""
    return pattern == Pattern()


def pattern_shares(
    pattern: Pattern, shares: list[Share], sparsity: float | None, layers: Sequence[Layer]
) -> list[Share]:
    """Return what is to go of which layers; n:m fixes it for each, blocks round counts up."""
    if is_free(pattern):
        return shares
    if pattern.keep_of is not None:
        kept, of = pattern.keep_of
        if sparsity is not None:
            pattern.count(sparsity, (1, of))  # no other sparsity is possible
        counts = {layer.name: -(-layer.size * (of - kept) // of) for layer in layers}
        _check_even(shares, counts, pattern)
        return [Share(((la.name, la.offset, la.size),), counts[la.name]) for la in layers]
    area = pattern.area
    sizes = [sum(size for _, _, size in share.layers) for share in shares]
    return [Share(s.layers, min(-(-s.count // area) * area, size)) for s, size in zip(shares, sizes, strict=True)]


def check_divides(pattern: Pattern, layer: LinearMap) -> None:
    """Refuse a layer that the pattern does not divide, by its name."""
    try:
        pattern.check(layer.rows(layer.weight).shape)
    except BrainsurgeonError as error:
        raise BrainsurgeonError(f"layer {layer.name!r}: {error}") from error


def budget_in(pattern: Pattern, surgery: Surgery, shares: Sequence[Share]) -> Budget:
    """Return the budget of a run, whose masks have the pattern; a layer that cannot have it is refused by name."""
    budget = as_budget(shares, surgery.device)
    if is_free(pattern):
        return budget
    maps = {layer.name: layer for layer in linear_maps(surgery.original, surgery.weights.names)}
    if strange := [name for name in surgery.weights.names if name not in maps]:
        raise BrainsurgeonError(
            f"the pattern {pattern} is of linear layers and convolutions, and {strange[0]!r} is of neither: leave it "
            "out (exclude) or prune without a pattern"
        )
    for layer in maps.values():
        check_divides(pattern, layer)
    places = {
        layer.name: PatternLayer(layer.name, layer.offset, _rows(maps[layer.name]), maps[layer.name].transposed)
        for layer in surgery.weights.layers
    }
    groups = tuple(tuple(places[name] for name, _, _ in share.layers) for share in shares)
    return PatternedBudget(budget.groups, budget.counts, pattern=pattern, layers=groups)


def read_pattern(record: Any) -> Pattern:
    """Return the pattern of a method's record; any mask is allowed where it has none."""
    if not isinstance(record, dict):
        return Pattern()
    kept, block = record["keep_of"], record["block"]
    return Pattern(record["per"], None if kept is None else (kept[0], kept[1]), (block[0], block[1]))


def check_masks(pattern: Pattern, model: nn.Module, masks: Mapping[str, Tensor], without: Sequence[str] = ()) -> None:
    """Refuse masks of a model's linear layers and convolutions that have not the pattern that they should have."""
    if is_free(pattern):
        return
    for layer in linear_maps(model, [name for name in masks if name not in without]):
        rows = layer.rows(masks[layer.name])
        rows = rows[0] if rows.shape[0] == 1 else rows
        if not pattern.feasible(rows, int(rows.sum())):
            raise ValueError(f"the mask of {layer.name!r} is not of the pattern {pattern}")


def feasible_mask(problem: Problem, pruned: Tensor) -> Tensor:
    """Return a selection's mask in the pattern of the budget; a search knows none, so its mask is brought there."""
    if not isinstance(problem.budget, PatternedBudget):
        return pruned
    saliency = problem.weights.double().square()
    if problem.maybe_quadratic is not None:
        saliency = saliency / problem.maybe_quadratic.inverse_diagonal.clamp_min(torch.finfo(torch.float64).tiny)
    return problem.budget.projected(pruned, saliency)


def _rows(layer: LinearMap) -> tuple[int, ...]:
    shape = layer.rows(layer.weight).shape
    return tuple(shape[1:] if shape[0] == 1 else shape)


def _check_even(shares: Sequence[Share], counts: dict[str, int], pattern: Pattern) -> None:
    """Refuse a budget that gives a layer another sparsity than n:m does."""
    for share in shares:
        if len(share.layers) == 1 and abs(share.count - counts[share.layers[0][0]]) > 1:
            raise BrainsurgeonError(
                f"the pattern {pattern} fixes the sparsity of every layer, and the budget asks for {share.count} of "
                f"{share.layers[0][2]} weights of {share.layers[0][0]!r}: leave it out of the budget"
            )
