"""Which masks of a layer are feasible: exact counts for the layer, for each row, n of every m inputs, or blocks.

A layer's weights are R x m (outputs x inputs), or G x R/G x m for a grouped convolution. `pruned` is True where a
weight is removed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from brainsurgeon.engine.layer.lowest import lowest, lowest_even, ranks_in_groups
from brainsurgeon.errors import BrainsurgeonError


@dataclass(frozen=True)
class Pattern:
    """A set of feasible masks.

    `per` says over what the count is held: the whole layer, or each row (to within one). `keep_of` = (n, m) keeps n of
    every m neighbouring inputs. `block` = (rows, inputs) prunes whole blocks. Ties go to the lowest index.
    """

    per: Literal["layer", "row"] = "layer"
    keep_of: tuple[int, int] | None = None
    block: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if self.per not in ("layer", "row"):
            raise BrainsurgeonError(f'a pattern counts per "layer" or per "row", got {self.per!r}')
        if min(self.block) < 1:
            raise BrainsurgeonError(f"a block needs at least one row and one input, got {self.block}")
        if self.keep_of is not None and not 0 < self.keep_of[0] < self.keep_of[1]:
            raise BrainsurgeonError(f"n:m keeps n of every m inputs with 0 < n < m, got {self.keep_of}")
        if self.keep_of is not None and self.block != (1, 1):
            raise BrainsurgeonError(f"a pattern is n:m or blocks, not both: got {self.keep_of} and {self.block}")

    def __str__(self) -> str:
        if self.keep_of is not None:
            return f"{self.keep_of[0]}:{self.keep_of[1]}"
        name = "" if self.block == (1, 1) else f"{self.block[0]}x{self.block[1]}"
        return (f"{name} row" if self.per == "row" else name).strip() or "unstructured"

    @property
    def area(self) -> int:
        """How many weights go together."""
        return self.block[0] * self.block[1]

    @property
    def width(self) -> int:
        """How many neighbouring inputs belong together: work may be cut at multiples of it."""
        return self.keep_of[1] if self.keep_of is not None else self.block[1]

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a layer that the pattern does not divide."""
        if len(shape) not in (2, 3):
            raise BrainsurgeonError(f"a layer is R x m, or G x R/G x m for groups, got the shape {tuple(shape)}")
        rows, inputs = shape[-2:]
        if rows % self.block[0] or inputs % self.width:
            needed = f"{self.width} inputs" if self.block[0] == 1 else f"{self.block[0]} rows and {self.width} inputs"
            raise BrainsurgeonError(
                f"the pattern {self} needs a layer that divides into {needed}, got the shape {tuple(shape)}: "
                "leave this layer out or take another pattern"
            )

    def count(self, sparsity: float, shape: Sequence[int]) -> int:
        """Return how many weights of the layer go: ⌈rN⌉, and for blocks the next multiple of their area.

        r is the decimal that was written. n:m fixes the sparsity; any other is refused.
        """
        self.check(shape)
        if not 0 < sparsity < 1:
            raise BrainsurgeonError(
                f"sparsity must lie strictly between 0 and 1 (0.9 removes 90% of the weights), got {sparsity!r}"
            )
        size, share = math.prod(shape), Fraction(str(sparsity))
        if self.keep_of is None:
            return math.ceil(Fraction(math.ceil(share * size), self.area)) * self.area
        kept, of = self.keep_of
        if abs(share - Fraction(of - kept, of)) > Fraction(1, 1000):  # 1/3 cannot be written as a decimal
            raise BrainsurgeonError(f"the pattern {self} means a sparsity of {1 - kept / of:.4g}, got {sparsity}")
        return size // of * (of - kept)

    def prune_lowest(self, scores: Tensor, count: int) -> Tensor:
        """Prune `count` weights with the lowest scores; a block's score is the sum over the block."""
        self.check_count(scores.shape, count)
        if not bool(torch.isfinite(scores).all()):
            raise BrainsurgeonError(
                "the scores of some weights are not finite: look for NaN or infinite weights or moments, "
                "or raise the damping"
            )
        return self.project(scores, count)

    def project(self, scores: Tensor, count: int) -> Tensor:
        """`prune_lowest` for the inside of a loop: without the checks."""
        if self.keep_of is not None:
            groups = self.cells(scores)
            return (ranks_in_groups(groups) < self.keep_of[1] - self.keep_of[0]).flatten(-2)
        sums = self.block_sums(scores)
        if self.per == "row":
            chosen = lowest_even(sums.flatten(0, -2), count // self.area)
        else:
            chosen = lowest(sums.reshape(1, -1), count // self.area)
        return self.spread(chosen.view(sums.shape))

    def feasible(self, pruned: Tensor, count: int) -> bool:
        """Say whether a mask has exactly this count in this pattern."""
        if int(pruned.sum()) != count:
            return False
        if self.keep_of is not None:
            lost = self.cells(pruned).sum(-1)
            return bool((lost == self.keep_of[1] - self.keep_of[0]).all())
        blocks = self.block_sums(pruned.int())
        rows = blocks.sum(-1)
        even = self.per == "layer" or int(rows.max() - rows.min()) <= self.area
        return even and bool(((blocks == 0) | (blocks == self.area)).all())

    def block_sums(self, values: Tensor) -> Tensor:
        """Sum R x m values over the blocks."""
        if self.area == 1:
            return values
        (rows, inputs), (high, wide) = values.shape[-2:], self.block
        return values.reshape(*values.shape[:-2], rows // high, high, inputs // wide, wide).sum((-3, -1))

    def spread(self, blocks: Tensor) -> Tensor:
        """Give every weight of a block what the block has: back from `block_sums` to R x m."""
        if self.area == 1:
            return blocks
        return blocks.repeat_interleave(self.block[0], -2).repeat_interleave(self.block[1], -1)

    def cells(self, values: Tensor) -> Tensor:
        """View `block_sums` of a layer as ... x cells x places: a kept and a pruned place of a cell may swap.

        A cell is a row (counts of layer and row both stay), or a group of m inputs for n:m.
        """
        places = self.keep_of[1] if self.keep_of is not None else values.shape[-1]
        return values.reshape(*values.shape[:-1], values.shape[-1] // places, places)

    def check_count(self, shape: Sequence[int], count: int) -> None:
        """Refuse a count that the pattern cannot have in a layer of this shape."""
        self.check(shape)
        size = math.prod(shape)
        if self.keep_of is not None and count * self.keep_of[1] != size * (self.keep_of[1] - self.keep_of[0]):
            raise BrainsurgeonError(
                f"the pattern {self} prunes {size * (self.keep_of[1] - self.keep_of[0]) // self.keep_of[1]} of "
                f"{size} weights, got the count {count}"
            )
        if not 0 <= count <= size or count % self.area:
            raise BrainsurgeonError(
                f"the pattern {self} prunes a multiple of {self.area} of {size} weights, got the count {count}"
            )


def parse_pattern(text: str) -> Pattern:
    """Read "unstructured", "row", "2:4", "1x4", or blocks counted by row: "4x4 row"."""
    words = text.split()
    per: Literal["layer", "row"] = "layer"
    if words and words[-1] == "row":
        per, words = "row", words[:-1] or ["unstructured"]
    if words == ["unstructured"]:
        return Pattern(per)
    found = re.fullmatch(r"(\d+)([:x])(\d+)", words[0]) if len(words) == 1 else None
    if found is None or (found[2] == ":" and per == "row"):
        raise BrainsurgeonError(
            f'a pattern is "unstructured", "row", n:m such as "2:4", or blocks such as "4x4", got {text!r}'
        )
    pair = int(found[1]), int(found[3])
    return Pattern(per, keep_of=pair) if found[2] == ":" else Pattern(per, block=pair)
