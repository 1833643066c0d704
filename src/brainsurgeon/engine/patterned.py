"""A budget whose masks have a pattern too.

Every selection that prunes the lowest scores is exact under it; the mask of any other is brought to a feasible one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.layer.lowest import lowest, lowest_even, ranks_in_groups
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.errors import BrainsurgeonError


@dataclass(frozen=True)
class PatternLayer:
    """Where a layer's weights lie in the flat vector, and how they are rows of inputs: `shape` is ... x R x m.

    A `transposed` layer is stored inputs first.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    transposed: bool = False

    def rows(self, flat: Tensor) -> Tensor:
        """Return a layer's part of the flat vector as rows."""
        part = flat[self.offset : self.offset + math.prod(self.shape)]
        return part.view(self.shape[-1], self.shape[-2]).T if self.transposed else part.view(self.shape)

    def write(self, flat: Tensor, rows: Tensor) -> None:
        """Put rows into a layer's part of the flat vector."""
        part = (rows.T if self.transposed else rows).reshape(-1)
        flat[self.offset : self.offset + part.numel()] = part


@dataclass(frozen=True)
class PatternedBudget(Budget):
    """How many weights to prune in each group of layers, in a pattern; `layers` are those of each group.

    With fewer weights than n:m prunes in the end, at most m − n of every m inputs go.
    """

    pattern: Pattern = field(kw_only=True)
    layers: tuple[tuple[PatternLayer, ...], ...] = field(kw_only=True)

    def with_counts(self, counts: Sequence[int]) -> Budget:
        """Return the budget on the way to this one: whole blocks, never more than in the end."""
        area = self.pattern.area
        whole = [min(-(-count // area) * area, most) for count, most in zip(counts, self.counts, strict=True)]
        return replace(self, counts=tuple(whole))

    def lowest(self, scores: Tensor) -> Tensor:
        """Prune the lowest scores that the pattern lets go, exactly to the counts; a block's score is its sum."""
        if not bool(torch.isfinite(scores).all()):
            raise BrainsurgeonError("the scores of some weights are not finite: raise the damping")
        pruned = torch.zeros_like(scores, dtype=torch.bool)
        for layers, count in zip(self.layers, self.counts, strict=True):
            parts = [layer.rows(scores) for layer in layers]
            for layer, mask in zip(layers, self._chosen(parts, count), strict=True):
                layer.write(pruned, mask)
        return pruned

    def projected(self, pruned: Tensor, saliency: Tensor) -> Tensor:
        """Return the mask itself where it is feasible; else the one that keeps most of what it keeps, then of worth."""
        worth = saliency.double() / saliency.max().clamp_min(torch.finfo(saliency.dtype).tiny)
        return self.lowest(worth + 2.0 * (~pruned))

    def check(self, pruned: Tensor) -> None:
        """Refuse a mask with other counts, or outside of the pattern."""
        super().check(pruned)
        for layers in self.layers:
            for layer in layers:
                if not self._feasible(layer.rows(pruned)):
                    raise BrainsurgeonError(f"a selection must keep to the pattern {self.pattern} in {layer.name!r}")

    def _chosen(self, parts: list[Tensor], count: int) -> Iterator[Tensor]:
        if self.pattern.keep_of is not None:
            kept, of = self.pattern.keep_of
            free = [(ranks_in_groups(self.pattern.cells(part)) < of - kept).view(part.shape) for part in parts]
            yield from _over_all([p.masked_fill(~f, torch.inf) for p, f in zip(parts, free, strict=True)], count)
            return
        sums = [self.pattern.block_sums(part) for part in parts]
        for part, mask in zip(sums, _over_all(sums, count // self.pattern.area), strict=True):
            if self.pattern.per == "row":
                mask = lowest_even(part.flatten(0, -2), int(mask.sum())).view(part.shape)
            yield self.pattern.spread(mask)

    def _feasible(self, pruned: Tensor) -> bool:
        if self.pattern.keep_of is None:
            return self.pattern.feasible(pruned, int(pruned.sum()))
        kept, of = self.pattern.keep_of
        return bool((self.pattern.cells(pruned).sum(-1) <= of - kept).all())


def _over_all(parts: list[Tensor], count: int) -> list[Tensor]:
    """Return the masks of the lowest numbers of several tensors together."""
    flat = torch.cat([part.reshape(-1) for part in parts])
    masks = lowest(flat.unsqueeze(0), count).squeeze(0).split([part.numel() for part in parts])
    return [mask.view(part.shape) for mask, part in zip(masks, parts, strict=True)]
