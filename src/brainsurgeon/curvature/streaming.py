"""Products with a tall matrix that is read once, in the precision it is stored in.

The gradients of n weights are stored as n rows of K numbers ("columns" of G), so that a few weights are a few
contiguous rows. Stored in half precision they are widened piece by piece, never as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

PIECE = 4 << 20
"""Numbers widened at once."""


def pieces(columns: Tensor, kept: Tensor | None = None, numbers: int = PIECE) -> Iterator[tuple[slice, Tensor]]:
    """Yield (place, rows in at least float32) over all rows, or over those with an index in `kept`."""
    count = columns.shape[0] if kept is None else kept.numel()
    step = max(1, numbers // max(columns.shape[1], 1))
    for start in range(0, count, step):
        place = slice(start, min(start + step, count))
        rows = columns[place] if kept is None else columns[kept[place]]
        yield place, widen(rows)


def widen(values: Tensor) -> Tensor:
    """Return at least float32."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def combine(columns: Tensor, x: Tensor) -> Tensor:
    """G x as a K-vector in float64: the sum of the stored rows weighted by x; only rows with x ≠ 0 are read if few."""
    support = x.nonzero().squeeze(1)
    if support.numel() * 8 < x.numel():
        columns, x = columns[support], x[support]
    if columns.dtype in (torch.float32, torch.float64):
        return (x.to(columns.dtype) @ columns).double()
    total = torch.zeros(columns.shape[1], dtype=torch.float64, device=columns.device)
    for place, rows in pieces(columns):
        total += (x[place].float() @ rows).double()
    return total


def combine_many(columns: Tensor, xs: Tensor) -> Tensor:
    """G X for the m columns of an n×m matrix X, K×m in float64: one read for all."""
    total = torch.zeros(columns.shape[1], xs.shape[1], dtype=torch.float64, device=columns.device)
    for place, rows in pieces(columns):
        total += (rows.T @ xs[place].to(rows.dtype)).double()
    return total


def project(columns: Tensor, r: Tensor) -> Tensor:
    """Gᵀ r as an n-vector in float64."""
    if columns.dtype in (torch.float32, torch.float64):
        return (columns @ r.to(columns.dtype)).double()
    return torch.cat([(rows @ r.float()).double() for _, rows in pieces(columns)])


def outer(columns: Tensor, kept: Tensor | None = None) -> Tensor:
    """G_S G_Sᵀ, K×K in float64; its lower triangle only."""
    size = columns.shape[1]
    total = torch.zeros(size, size, dtype=torch.float64, device=columns.device)
    for _, rows in pieces(columns, kept, max(PIECE, 2048 * size)):
        _add_lower(total, rows.T)
    return total


def inner(columns: Tensor, kept: Tensor | None = None) -> Tensor:
    """G_SᵀG_S, |S|×|S| in float64; its lower triangle only."""
    size = columns.shape[0] if kept is None else kept.numel()
    total = torch.zeros(size, size, dtype=torch.float64, device=columns.device)
    step = max(2048, PIECE // max(size, 1))
    for start in range(0, columns.shape[1], step):
        part = columns[:, start : start + step]
        _add_lower(total, widen(part if kept is None else part[kept]))
    return total


def _add_lower(total: Tensor, rows: Tensor, panel: int = 1024) -> None:
    """Add rows·rowsᵀ to the lower triangle: in the rows' precision within a piece, in float64 across pieces."""
    for start in range(0, total.shape[0], panel):
        stop = min(start + panel, total.shape[0])
        total[start:stop, :stop] += rows[start:stop] @ rows[:stop].T
