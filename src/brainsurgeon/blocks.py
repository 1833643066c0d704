"""Blocks: which columns of the gradients share a curvature matrix."""

from __future__ import annotations

from .errors import BrainsurgeonError
from .weights import PrunableWeights

COLUMNS_PER_ROW = 40
"""With `blocks="auto"` a block has at most this many weights for each row of gradients: wider than that, the
low-rank curvature knows too little of its block (the paper's own settings lie just inside)."""


def make_blocks(rule: str | int, weights: PrunableWeights, rows: int) -> list[slice]:
    """Cut the N weights into blocks.

    `"model"` is one block; `"layer"` one a layer; a number n cuts each layer into chunks of at most n; `"auto"`
    takes the largest of these that gives no block more than 40 weights a row.
    """
    if rule == "auto":
        limit = COLUMNS_PER_ROW * max(rows, 1)
        return make_blocks("model" if weights.size <= limit else limit, weights, rows)
    if rule == "model":
        return [slice(0, weights.size)]
    if rule == "layer":
        return [layer.columns for layer in weights.layers]
    if isinstance(rule, bool) or not isinstance(rule, int) or rule < 1:
        raise BrainsurgeonError(f'blocks must be "model", "layer", "auto" or a positive number, got {rule!r}')
    return [
        slice(start, min(start + rule, layer.offset + layer.size))
        for layer in weights.layers
        for start in range(layer.offset, layer.offset + layer.size, rule)
    ]
