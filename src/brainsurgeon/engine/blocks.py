"""Blocks: which columns of the gradients share a curvature matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from brainsurgeon.errors import BrainsurgeonError

COLUMNS_PER_ROW = 40
"""With `blocks="auto"` a block has at most this many weights for each row of gradients: wider than that, the
low-rank curvature knows too little of its block (the paper's own settings lie just inside)."""


class Part(Protocol):
    """A layer, as far as blocks are concerned: its place in the flat vector."""

    @property
    def offset(self) -> int:
        """Where it begins."""

    @property
    def size(self) -> int:
        """How many weights it has."""

    @property
    def columns(self) -> slice:
        """Its place."""


def make_blocks(
    rule: str | int, layers: Sequence[Part], rows: int, columns_per_row: int = COLUMNS_PER_ROW
) -> list[slice]:
    """Cut the N weights into blocks.

    `"model"` is one block; `"layer"` one a layer; a number n cuts each layer into chunks of at most n; `"auto"`
    takes the largest of these that gives no block more than 40 weights a row.
    """
    size = sum(layer.size for layer in layers)
    if rule == "auto":
        limit = columns_per_row * max(rows, 1)
        return make_blocks("model" if size <= limit else limit, layers, rows)
    if rule == "model":
        return [slice(0, size)]
    if rule == "layer":
        return [layer.columns for layer in layers]
    if isinstance(rule, bool) or not isinstance(rule, int) or rule < 1:
        raise BrainsurgeonError(f'blocks must be "model", "layer", "auto" or a positive number, got {rule!r}')
    return [
        slice(start, min(start + rule, layer.offset + layer.size))
        for layer in layers
        for start in range(layer.offset, layer.offset + layer.size, rule)
    ]
