"""Groups tried out before any work: the smaller network must run, and do what the large one does without the units."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations, takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from brainsurgeon.network.agreement import is_near
from brainsurgeon.structured.groups import Group, tied
from brainsurgeon.structured.remove import cuts_of, remove, silence
from brainsurgeon.structured.tracing import Call

TOLERANCE = 1e-3
"""The largest difference allowed, as a share of the largest output."""
MOST_NUMBERS = 5
"""Whole numbers of a module that are tried in all combinations."""

Numbers = dict[tuple[str, str], int]
"""A module's name, its attribute, and what the attribute has for each unit of a group."""


def try_out(
    model: nn.Module, call: Call, groups: Sequence[Group], axes: Mapping[str, int]
) -> tuple[list[Group], list[Numbers], dict[str, str]]:
    """Return the groups that can be removed, the numbers that modules hold for each, and the others with the reason."""
    alone = [Numbers() for _ in groups]
    if _differs(model, call, groups, alone, axes) is None:
        return list(groups), alone, {}
    kept, numbers, refused = list[Group](), list[Numbers](), dict[str, str]()
    halves = defaultdict[tuple[str, int], list[Group]](list)
    for group in groups:
        found, reason = _try_numbers(model, call, group, axes)
        if found is None:
            refused[group.name] = reason
            halves[group.writers[0], group.units].append(group)
        else:
            kept.append(group)
            numbers.append(found)
    for parts in halves.values():  # of what is cut in equal parts each must lose as many
        found = _try_numbers(model, call, whole := tied(parts), axes)[0] if len(parts) > 1 else None
        if found is not None:
            kept.append(whole)
            numbers.append(found)
            refused = {name: reason for name, reason in refused.items() if name not in {part.name for part in parts}}
    wrong = _differs(model, call, kept, numbers, axes) if kept else None
    if wrong is not None:
        refused |= {group.name: f"together with the other groups {wrong}" for group in kept}
        kept, numbers = [], []
    return kept, numbers, refused


def numbers_after(groups: Sequence[Group], numbers: Sequence[Numbers], kept: Sequence[int]) -> Numbers:
    """Return the value of every attribute when the groups keep so many units."""
    return {key: each * count for own, count in zip(numbers, kept, strict=True) for key, each in own.items()}


def _try_numbers(model: nn.Module, call: Call, group: Group, axes: Mapping[str, int]) -> tuple[Numbers | None, str]:
    """Find the fewest whole numbers of the module around a group whose change lets the smaller network run."""
    reason = ""
    candidates = list(_candidates(model, group).items())[:MOST_NUMBERS]
    for many in range(len(candidates) + 1):
        for chosen in combinations(candidates, many):
            found = _differs(model, call, [group], [dict(chosen)], axes)
            if found is None:
                return dict(chosen), ""
            reason = reason or found
    return None, reason


def _candidates(model: nn.Module, group: Group) -> Numbers:
    """Return the whole numbers of the innermost module around a group that equal its units, or a width of them."""
    owners = [name.split(".")[:-1] for name, _ in group.places]
    shared = takewhile(lambda level: len(set(level)) == 1, zip(*owners, strict=False))
    around = ".".join(level[0] for level in shared)
    widths = {group.units, *(indices.numel() for indices in group.places.values())}
    own = vars(model.get_submodule(around))
    return {
        (around, name): value // group.units
        for name, value in own.items()
        if type(value) is int and value in widths and not name.startswith("_")
    }


def _differs(
    model: nn.Module, call: Call, groups: Sequence[Group], numbers: Sequence[Numbers], axes: Mapping[str, int]
) -> str | None:
    """Remove some units of each group; say what is wrong with the smaller network, None where nothing is."""
    first = [_some(group.units) for group in groups]
    turned = [units.flip(0) for units in first]
    every_other = [[units & (k % 2 == odd) for k, units in enumerate(first)] for odd in (0, 1)]
    for removed in (first, turned, *(every_other if len(groups) > 1 else [])):
        wrong = difference(model, call, groups, removed, numbers, axes)
        if wrong is not None:
            return wrong
    return None


def _some(units: int) -> Tensor:
    """Return two units in five, at no regular places.

    Code that cuts tensors in halves must not seem to follow: what suits it fails when it is turned round, or where one
    group loses more units than another.
    """
    chosen = torch.randperm(units, generator=torch.Generator().manual_seed(units))[: max(1, 2 * units // 5)]
    return torch.isin(torch.arange(units), chosen)


def difference(
    model: nn.Module,
    call: Call,
    groups: Sequence[Group],
    removed: Sequence[Tensor],
    numbers: Sequence[Numbers],
    axes: Mapping[str, int],
) -> str | None:
    """Remove these units; say what is wrong with the smaller network, None where nothing is."""
    sizes = stored_shapes(model)
    after = numbers_after(groups, numbers, [int((~units).sum()) for units in removed])
    expected = call.run(silence(copy.deepcopy(model), groups, removed, axes))
    try:
        found = call.run(remove(copy.deepcopy(model), cuts_of(groups, removed, sizes, after)))
    except Exception as error:  # a network's own code, which may hold sizes of its own
        said = str(error).strip().partition("\n")[0]
        return f"the smaller network does not run ({type(error).__name__}: {said})"
    return None if agree(found, expected) else "the smaller network gives other outputs than the large one without them"


def _stored(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


def stored_shapes(model: nn.Module) -> dict[str, torch.Size]:
    """Return the shapes of all parameters and buffers, by every name they have."""
    return {name: tensor.shape for name, tensor in _stored(model).items()}


def agree(found: Any, expected: Any, tolerance: float = TOLERANCE) -> bool:
    """Say whether two outputs hold the same numbers."""
    ones, others = (_tensors(value) for value in (found, expected))
    if [one.shape for one in ones] != [other.shape for other in others]:
        return False
    return all(is_near(one, other, tolerance, least=1e-6) for one, other in zip(ones, others, strict=True))


def _tensors(value: Any) -> list[Tensor]:
    """Return the numbers of all tensors of an output, those of a complex one as pairs."""
    if isinstance(value, Mapping):
        value = list(value.values())
    leaves = [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
    real = [torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf for leaf in leaves]
    return [leaf.double() for leaf in real if leaf.is_floating_point()]
