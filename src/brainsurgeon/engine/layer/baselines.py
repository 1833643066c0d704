"""The methods that users compare with, on the same moments and with exact counts in every pattern."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brainsurgeon.engine.layer.lowest import lowest, lowest_by_rank, ranks_in_groups
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.standard import inverse, standard_form

# Columns that are worked on one by one before the rest of the layer hears of them.
COLUMN_BLOCK = 128


def wanda_scores(weights: Tensor, moments: Tensor, squares: Tensor | None = None) -> Tensor:
    """Return |w_ij| √A_jj, the size of a weight times that of its input; `squares` stand for a damped diagonal."""
    squares = moments.diagonal(dim1=-2, dim2=-1) if squares is None else squares
    return weights.abs() * squares.clamp_min(0).sqrt().to(weights.dtype).unsqueeze(-2)


def sparsegpt(
    weights: Tensor, moments: Tensor, pattern: Pattern, count: int, block: int = COLUMN_BLOCK
) -> tuple[Tensor, Tensor]:
    """Prune column after column, each error passed on to the columns still to come (SparseGPT).

    With A⁻¹ = UᵀU (U upper triangular), removing w_ij costs w_ij²/U_jj² and moves the later columns by
    −(w_ij/U_jj) U_j. The mask is chosen for `block` columns at a time, and every block takes its exact share of the
    count. Returns the weights and the mask (True = pruned).
    """
    pattern.check_count(weights.shape, count)
    problem = standard_form(weights, moments)
    upper = torch.linalg.cholesky(inverse(problem.moments)[0], upper=True)
    current = problem.weights.clone()
    pruned = torch.zeros_like(current, dtype=torch.bool)
    shares = _Shares(pattern, problem.weights.square(), count)
    width = max(1, block // pattern.width) * pattern.width
    inputs = current.shape[-1]
    for first in range(0, inputs, width):
        last = min(first + width, inputs)
        part, factor = current[..., first:last], upper[..., first:last, first:last]
        chosen = None if pattern.keep_of else shares.choose(_scores(part, factor), first, last)
        chosen, errors = _columns(part, factor, pattern, chosen)
        pruned[..., first:last] = chosen
        current[..., last:] -= errors @ upper[..., first:last, last:]
    unit = problem.row_unit * torch.where(problem.input_unit == 0, 1.0, problem.input_unit)
    return (current / unit).to(weights.dtype).masked_fill(pruned, 0.0), pruned


def _scores(part: Tensor, factor: Tensor) -> Tensor:
    return (part / factor.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)).square()


def _columns(part: Tensor, factor: Tensor, pattern: Pattern, chosen: Tensor | None) -> tuple[Tensor, Tensor]:
    """Prune the columns of one block in place; n:m groups are chosen when their turn comes."""
    mask = torch.zeros_like(part, dtype=torch.bool) if chosen is None else chosen
    errors = torch.zeros_like(part)
    for j in range(part.shape[-1]):
        if chosen is None and j % pattern.width == 0 and pattern.keep_of:
            group = slice(j, j + pattern.width)
            ranks = ranks_in_groups(_scores(part[..., group], factor[..., group, group]))
            mask[..., group] = ranks < pattern.keep_of[1] - pattern.keep_of[0]
        error = part[..., j].masked_fill(~mask[..., j], 0.0) / factor[..., j, j].unsqueeze(-1)
        part[..., j:] -= error.unsqueeze(-1) * factor[..., j, j:].unsqueeze(-2)
        errors[..., j] = error
    part.masked_fill_(mask, 0.0)
    return mask, errors


class _Shares:
    """What each block of columns gives: the count, or each row's count, in proportion and exact at the end."""

    def __init__(self, pattern: Pattern, sizes: Tensor, count: int) -> None:
        self.pattern, self.inputs = pattern, sizes.shape[-1] // pattern.block[1]
        self.total = count // pattern.area
        blocks = pattern.block_sums(pattern.project(sizes, count).int()) // pattern.area
        self.row_totals = blocks.sum(-1)

    def choose(self, scores: Tensor, first: int, last: int) -> Tensor:
        begin, end = first // self.pattern.block[1], last // self.pattern.block[1]
        sums = self.pattern.block_sums(scores)
        if self.pattern.per == "row":
            counts = self.row_totals * end // self.inputs - self.row_totals * begin // self.inputs
            return self.pattern.spread(lowest_by_rank(sums, counts))
        count = self.total * end // self.inputs - self.total * begin // self.inputs
        rows = math.prod(sums.shape[:-1])
        return self.pattern.spread(lowest(sums.reshape(1, rows * sums.shape[-1]), count).view(sums.shape))
