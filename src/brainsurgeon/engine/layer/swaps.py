"""Swaps of kept and pruned weights in every row, tried by least squares: rows that rose go back and try fewer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.engine.layer.joint_swaps import SMALLEST_GAIN, estimated_diagonal, joint_swaps
from brainsurgeon.engine.layer.least_squares import refit, row_pieces
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.standard import Standard

# Pruned weights looked at, and swapped at most, for each row and round.
CANDIDATES = 8


@dataclass(frozen=True)
class Swapped:
    """A mask and its fit after swaps, and how many rows (of blocks) changed in each round."""

    pruned: Tensor
    distance: Tensor
    improved: tuple[int, ...]


def improve_by_swaps(
    problem: Standard,
    pattern: Pattern,
    pruned: Tensor,
    distance: Tensor,
    inverted: Tensor,
    rounds: int,
    tolerance: float,
    candidates: int = CANDIDATES,
) -> Swapped:
    """Swap from a least-squares point; the count of every row stays, and the objective of no row rises."""
    propose = joint_swaps if pattern.area == 1 else block_swaps
    high = pattern.block[0]
    value = _by_block_row(high, problem.objective(distance))
    allowed = torch.full_like(value, candidates, dtype=torch.long)
    improved: list[int] = []
    for _ in range(rounds):
        trial = pruned.clone()
        for piece in row_pieces(problem.weights, copies=candidates, multiple=high):
            state = (pruned[..., piece, :], distance[..., piece, :], inverted)
            limit = allowed[..., piece.start // high : piece.stop // high]
            trial[..., piece, :] = propose(problem.rows(piece), pattern, *state, limit, candidates)
        fit = refit(problem, trial, inverted, distance, tolerance)
        fresh = _by_block_row(high, problem.objective(fit.distance))
        better = fresh < value - SMALLEST_GAIN * value.abs()
        rows = better.repeat_interleave(high, -1).unsqueeze(-1)
        pruned = torch.where(rows, trial, pruned)
        distance = torch.where(rows, fit.distance, distance)
        value = torch.where(better, fresh, value)
        allowed = torch.where(better, allowed, allowed // 2)
        improved.append(int(better.sum()))
        if not bool((allowed > 0).any()):
            break
    return Swapped(pruned, distance, tuple(improved))


def block_swaps(
    problem: Standard,
    pattern: Pattern,
    pruned: Tensor,
    distance: Tensor,
    inverted: Tensor,
    allowed: Tensor,
    candidates: int,
) -> Tensor:
    """Swap whole blocks of a row of blocks by the sums of their separate gains and costs."""
    diagonal = estimated_diagonal(inverted, pruned)
    gone = pattern.block_sums(pruned.int()) > 0
    gains = pattern.block_sums(problem.residual(distance).square() * diagonal).masked_fill(~gone, -torch.inf)
    costs = pattern.block_sums((problem.weights + distance).square() / diagonal).masked_fill(gone, torch.inf)
    listed = min(candidates, gone.shape[-1])
    gain, back = gains.topk(listed, dim=-1)
    cost, out = costs.topk(listed, dim=-1, largest=False)
    places = torch.arange(listed, device=gone.device)
    use = (gain > cost) & (places < allowed.unsqueeze(-1))
    trial = gone.scatter(-1, out, use | gone.gather(-1, out))
    return pattern.spread(trial.scatter(-1, back, trial.gather(-1, back) & ~use))


def _by_block_row(high: int, values: Tensor) -> Tensor:
    return values.reshape(*values.shape[:-1], values.shape[-1] // high, high).sum(-1)
