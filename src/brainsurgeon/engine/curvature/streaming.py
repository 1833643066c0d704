"""Products with a tall matrix that is read once, in the precision it is stored in or a higher one.

The gradients of n weights are stored as n rows of K numbers ("columns" of G), so that a few weights are a few
contiguous rows. Stored in half precision they are widened piece by piece, never as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from brainsurgeon.events.clock import pulse

PIECE = 4 << 20
"""Numbers widened at once."""
PANEL = 256
"""Rows of a symmetric product made at once: the narrower, the less is computed above the diagonal."""


def pieces(
    columns: Tensor, kept: Tensor | None = None, numbers: int = PIECE, dtype: torch.dtype | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Yield (place, rows in at least float32, or in `dtype`) over all rows, or over those with an index in `kept`.

    What is copied goes into one buffer, overwritten by the next piece: freed and taken again with small results in
    between, such buffers would leave holes in the heap, as large as the matrix in all.
    """
    count = columns.shape[0] if kept is None else kept.numel()
    step = max(1, min(count, numbers // max(columns.shape[1], 1)))
    wide = dtype or _wide(columns)
    gathered = None if kept is None else columns.new_empty(step, columns.shape[1])
    widened = None if wide == columns.dtype else columns.new_empty(step, columns.shape[1], dtype=wide)
    for start in range(0, count, step):
        pulse()
        place = slice(start, min(start + step, count))
        rows = columns[place]
        if gathered is not None and kept is not None:
            rows = torch.index_select(columns, 0, kept[place], out=gathered[: place.stop - start])
        yield place, rows if widened is None else widened[: place.stop - start].copy_(rows)


def widen(values: Tensor) -> Tensor:
    """Return at least float32."""
    return values.to(_wide(values))


def _wide(values: Tensor) -> torch.dtype:
    return values.dtype if values.dtype in (torch.float32, torch.float64) else torch.float32


def combine(columns: Tensor, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """G x as a K-vector in float64: the sum of the stored rows weighted by x; only rows with x ≠ 0 are read if few."""
    support = x.nonzero().squeeze(1)
    few = support.numel() * 8 < x.numel()
    if not few and (dtype or _wide(columns)) == columns.dtype:
        return (x.to(columns.dtype) @ columns).double()
    total = torch.zeros(columns.shape[1], dtype=torch.float64, device=columns.device)
    x = x[support] if few else x
    for place, rows in pieces(columns, support if few else None, dtype=dtype):
        total += x[place].to(rows.dtype) @ rows
    return total


def combine_many(columns: Tensor, xs: Tensor, kept: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """G_S X for the m columns of an |S|×m matrix X, K×m in float64: one read for all."""
    total = torch.zeros(columns.shape[1], xs.shape[1], dtype=torch.float64, device=columns.device)
    for place, rows in pieces(columns, kept, dtype=dtype):
        total += rows.T @ xs[place].to(rows.dtype)
    return total


def project(columns: Tensor, r: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Gᵀ r as an n-vector in float64."""
    if (dtype or _wide(columns)) == columns.dtype:
        return (columns @ r.to(columns.dtype)).double()
    result = torch.empty(columns.shape[0], dtype=torch.float64, device=columns.device)
    for place, rows in pieces(columns, dtype=dtype):
        result[place] = rows @ r.to(rows.dtype)
    return result


def squares(columns: Tensor) -> Tensor:
    """‖g_i‖² of every row, in float64."""
    result = torch.empty(columns.shape[0], dtype=torch.float64, device=columns.device)
    for place, rows in pieces(columns):
        result[place] = rows.square().sum(1)
    return result


def outer(columns: Tensor, kept: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """G_S G_Sᵀ, K×K in float64; its lower triangle only."""
    size = columns.shape[1]
    total = torch.zeros(size, size, dtype=torch.float64, device=columns.device)
    add_outer(total, columns, kept, dtype=dtype)
    return total


def add_outer(
    total: Tensor, columns: Tensor, kept: Tensor | None = None, sign: int = 1, dtype: torch.dtype | None = None
) -> None:
    """Add G_S G_Sᵀ to the lower triangle of a K×K matrix, or take it away."""
    for _, rows in pieces(columns, kept, max(PIECE, 2048 * columns.shape[1]), dtype):
        _add_lower(total, rows.T, sign)


def inner(columns: Tensor, kept: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """G_SᵀG_S, |S|×|S| in float64; its lower triangle only."""
    size = columns.shape[0] if kept is None else kept.numel()
    total = torch.zeros(size, size, dtype=torch.float64, device=columns.device)
    step = max(2048, PIECE // max(size, 1))
    for start in range(0, columns.shape[1], step):
        part = columns[:, start : start + step]
        _add_lower(total, (part if kept is None else part[kept]).to(dtype or _wide(part)))
    return total


def _add_lower(total: Tensor, rows: Tensor, sign: int = 1) -> None:
    """Add rows·rowsᵀ to the lower triangle: in the rows' precision within a piece, in float64 across pieces."""
    for start in range(0, total.shape[0], PANEL):
        stop = min(start + PANEL, total.shape[0])
        total[start:stop, :stop].add_(rows[start:stop] @ rows[:stop].T, alpha=sign)
