"""Exact counts: which weights go is a method's choice, how many is not.

`pruned` is True where a weight is removed, everywhere in this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from numbers import Real

import torch
from torch import Tensor

from brainsurgeon.engine.layer.lowest import lowest as lowest_of_rows
from brainsurgeon.errors import BrainsurgeonError


def exact_count(sparsity: float, size: int) -> int:
    """Return ⌈rN⌉, with r taken as the decimal that was written (0.9 · 32,360 is 29,124, not 29,124.000…4)."""
    if not isinstance(sparsity, Real) or not 0 < sparsity < 1:
        raise BrainsurgeonError(
            f"sparsity must lie strictly between 0 and 1 (0.9 removes 90% of the weights), got {sparsity!r}"
        )
    return math.ceil(Fraction(str(sparsity)) * size)


def as_decimal(sparsity: float) -> float:
    """Return the decimal that was written, as a plain number: 0.9 for a float32 of 0.9, too."""
    return float(Fraction(str(sparsity)))


def lowest(scores: Tensor, count: int) -> Tensor:
    """Return a mask of exactly `count` lowest scores; ties go to the lowest index."""
    if not bool(torch.isfinite(scores).all()):
        raise BrainsurgeonError(
            "the scores of some weights are not finite: look for NaN or infinite weights or gradients, "
            "or raise the damping"
        )
    return lowest_of_rows(scores.unsqueeze(0), count).squeeze(0)


@dataclass(frozen=True)
class Budget:
    """How many weights to prune in each group of weights.

    A group is a sorted index tensor; groups partition the N weights. Every selection prunes exactly
    `counts[g]` weights of `groups[g]`, and the counts add up to ⌈rN⌉.
    """

    groups: tuple[Tensor, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """⌈rN⌉."""
        return sum(self.counts)

    @property
    def size(self) -> int:
        """N."""
        return sum(group.numel() for group in self.groups)

    def labels(self) -> Tensor:
        """Return the number of the group of each weight."""
        labels = torch.empty(self.size, dtype=torch.long, device=self.groups[0].device)
        for number, group in enumerate(self.groups):
            labels[group] = number
        return labels

    def with_counts(self, counts: Sequence[int]) -> Budget:
        """Return a budget of the same groups with other counts: one on the way to this."""
        return Budget(self.groups, tuple(counts))

    def lowest(self, scores: Tensor) -> Tensor:
        """Prune the lowest scores of each group, exactly to its count."""
        if len(self.groups) == 1:
            return lowest(scores, self.counts[0])
        pruned = torch.zeros_like(scores, dtype=torch.bool)
        for group, count in zip(self.groups, self.counts, strict=True):
            pruned[group] = lowest(scores[group], count)
        return pruned

    def check(self, pruned: Tensor) -> None:
        """Refuse a mask that is not a boolean N-vector with exactly the right counts."""
        if pruned.dtype != torch.bool or pruned.shape != (self.size,):
            raise BrainsurgeonError(
                f"a selection must return a boolean mask of {self.size} entries (True where pruned), "
                f"got {pruned.dtype} of shape {tuple(pruned.shape)}"
            )
        for group, count in zip(self.groups, self.counts, strict=True):
            found = int(pruned[group].sum())
            if found != count:
                raise BrainsurgeonError(f"a selection must prune exactly {count} weights here, it pruned {found}")


def apportion(total: int, quotas: list[Fraction], sizes: list[int]) -> list[int]:
    """Round the quotas to whole numbers that add up to `total` (largest remainders first)."""
    counts = [min(math.floor(quota), size) for quota, size in zip(quotas, sizes, strict=True)]
    order = sorted(range(len(quotas)), key=lambda k: (counts[k] - quotas[k], k))
    missing = total - sum(counts)
    while missing:
        open_ = [k for k in order if counts[k] < sizes[k]]
        for k in open_[:missing]:
            counts[k] += 1
        missing = total - sum(counts)
    return counts


Part = tuple[str, int, int]
"""A layer, as a budget sees it: name, offset, size."""


@dataclass(frozen=True)
class Share:
    """So many weights of these layers together are to go."""

    layers: tuple[Part, ...]
    count: int


Matches = Callable[[str, str], bool]
"""Says whether a pattern means a layer of a name."""


def _by_glob(pattern: str, name: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def names_every(rule: str | dict[str, float], layers: Sequence[Part], matches: Matches = _by_glob) -> bool:
    """Say whether a rule gives every layer its own sparsity, and so the sparsity of all."""
    return isinstance(rule, dict) and all(any(matches(pattern, layer[0]) for pattern in rule) for layer in layers)


def share_out(
    rule: str | dict[str, float], sparsity: float | None, layers: Sequence[Part], matches: Matches = _by_glob
) -> list[Share]:
    """Turn `"global"`, `"uniform"` or `{pattern: sparsity}` into exact counts for sets of layers.

    With a dict each matching layer gets the sparsity of the first pattern that `matches` its name, and the other layers
    together take the rest of ⌈rN⌉. One that names every layer needs no sparsity beside it.
    """
    if sparsity is None and isinstance(rule, dict):
        return _by_pattern(rule, layers, None, matches)
    size = sum(layer[2] for layer in layers)
    if sparsity is None:
        raise BrainsurgeonError("give the sparsity, or a budget that names every layer: {layer: sparsity}")
    total = exact_count(sparsity, size)
    if rule == "global":
        return [Share(tuple(layers), total)]
    if rule == "uniform":
        sizes = [layer[2] for layer in layers]
        counts = apportion(total, [Fraction(total * n, size) for n in sizes], sizes)
        return [Share((layer,), count) for layer, count in zip(layers, counts, strict=True)]
    if not isinstance(rule, dict) or not all(isinstance(pattern, str) for pattern in rule):
        raise BrainsurgeonError(f'budget must be "global", "uniform" or {{pattern: sparsity}}, got {rule!r}')
    return _by_pattern(rule, layers, total, matches)


def make_budget(rule: str | dict[str, float], sparsity: float, layers: Sequence[Part], device: torch.device) -> Budget:
    """Return the groups and exact counts of a rule, as index tensors on a device."""
    return as_budget(share_out(rule, sparsity, layers), device)


def as_budget(shares: Sequence[Share], device: torch.device) -> Budget:
    """Return shares as groups of indices into the flat vector."""

    def indices(share: Share) -> Tensor:
        return torch.cat([torch.arange(o, o + n, device=device) for _, o, n in share.layers])

    return Budget(tuple(map(indices, shares)), tuple(share.count for share in shares))


def _count_of(pattern: str, sparsity: float, size: int) -> int:
    """Return ⌈rN⌉ of one layer, which may be left whole or go as a whole."""
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real) or not 0 <= sparsity <= 1:
        raise BrainsurgeonError(f"budget: the sparsity of {pattern!r} must lie from 0 to 1, got {sparsity!r}")
    return math.ceil(Fraction(str(sparsity)) * size)


def _by_pattern(rule: dict[str, float], layers: Sequence[Part], total: int | None, matches: Matches) -> list[Share]:
    fixed: list[Share] = []
    rest: list[Part] = []
    used: set[str] = set()
    for layer in layers:
        meant = [pattern for pattern in rule if matches(pattern, layer[0])]
        used.update(meant)
        if not meant:
            rest.append(layer)
        else:
            pattern = meant[0]
            fixed.append(Share((layer,), _count_of(pattern, rule[pattern], layer[2])))
    if unused := [p for p in rule if p not in used]:
        names = ", ".join(layer[0] for layer in layers)
        raise BrainsurgeonError(f"budget pattern {unused[0]!r} matches no layer; the layers are: {names}")
    named, size = sum(share.count for share in fixed), sum(layer[2] for layer in layers)
    free = sum(layer[2] for layer in rest)
    if total is None and rest:
        names = ", ".join(layer[0] for layer in rest[:6]) + (" …" if len(rest) > 6 else "")
        raise BrainsurgeonError(
            f"without a sparsity the budget must name every layer, and {len(rest)} of {len(layers)} are not in it "
            f'({names}): name them ("*" means all others), or give the sparsity that they shall make up to'
        )
    if not rest and total not in (None, named):
        raise BrainsurgeonError(
            f"the budget names every layer and comes to {named} of {size} weights ({named / size:.4f}), while the "
            f"sparsity asks for {total}: leave the sparsity out, or leave a layer out of the budget, which then takes "
            "the rest"
        )
    total = named if total is None else total
    if not total:
        raise BrainsurgeonError("the budget removes no weight: give some layer a sparsity above 0")
    left = total - named
    if not 0 <= left <= free:
        raise BrainsurgeonError(
            f"the budget cannot be met: {total} weights are to be pruned in all, the patterns fix "
            f"{named}, and the other layers hold {free}; change the sparsity or the patterns"
        )
    return fixed + ([Share(tuple(rest), left)] if rest else [])
