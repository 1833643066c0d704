"""Joint swaps of all rows: bring a pruned weight back, remove a kept one, let the others of the row make up for both.

For one row with kept set S, B = (Ã_SS)⁻¹, gradient g = eÃ (zero on S), v = B Ã_Sp and s_p = Ã_pp − Ã_pS v,
removing u and bringing p back changes the best objective by exactly

    −g_p²/(2 s_p) + (w_u + v_u g_p/s_p)² / (2 (B_uu + v_u²/s_p)).

No row gets a factor of its own. A short list C of pruned weights has its v, and T = Ã_CC − Ã_CS B Ã_SC (s is its
diagonal), from a few conjugate gradient steps; every swap that is made changes w, g, v, T and diag B by rank one, with
one column of B solved for. Only diag B starts from an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.standard import Standard, dot
from brainsurgeon.events.clock import pulse

# Conjugate gradient steps for the v of the listed weights, and for the column of B of a weight that is removed.
COUPLING_STEPS = 3
COLUMN_STEPS = 4
# [Ã_SS⁻¹]_uu lies between 1 and [Ã⁻¹]_uu. On layers of a language model it is the latter to the power κ^¼ within a
# tenth or two, κ the kept share.
DENSITY_POWER = 0.25
# A swap must win this share of the row's objective, or it is rounding.
SMALLEST_GAIN = 1e-5


@dataclass(frozen=True)
class RowState:
    """The rows between two swaps: weights w, diag B, mask of the kept, and g, v, T, free for the listed weights."""

    weights: Tensor
    diagonal: Tensor
    kept: Tensor
    gradient: Tensor
    coupling: Tensor
    schur: Tensor
    free: Tensor


def swap_change(weight: Tensor, diagonal: Tensor, gradient: Tensor, coupling: Tensor, schur: Tensor) -> Tensor:
    """Return the exact change of the objective for removing u (w_u, B_uu) and bringing back p (g_p, v_u, s_p)."""
    ratio = gradient / schur
    rise = torch.addcmul(weight, coupling, ratio).square() / torch.addcmul(diagonal, coupling, coupling / schur)
    return (rise - gradient * ratio) / 2


def estimated_diagonal(inverted: Tensor, pruned: Tensor) -> Tensor:
    """Return about [Ã_SS⁻¹]_uu for u kept; its inverse is about s_p for p pruned."""
    density = (~pruned).to(inverted.dtype).mean(-1, keepdim=True)
    diagonal = inverted.diagonal(dim1=-2, dim2=-1).clamp_min(1.0).unsqueeze(-2)
    return diagonal.pow(density.pow(DENSITY_POWER))


def joint_swaps(
    problem: Standard,
    pattern: Pattern,
    pruned: Tensor,
    distance: Tensor,
    inverted: Tensor,
    allowed: Tensor,
    candidates: int,
) -> Tensor:
    """Return the mask after up to `allowed` swaps in each row, each the best by the formula after those before it."""
    gradient = -problem.residual(distance)
    diagonal = estimated_diagonal(inverted, pruned)
    gains = (gradient.square() * diagonal).masked_fill(~pruned, -1.0)
    found, listed = gains.topk(min(candidates, gains.shape[-1]), dim=-1)
    coupling, schur = _couplings(problem.moments, inverted, pruned, listed)
    weights = (problem.weights + distance).masked_fill(pruned, 0.0)
    state = RowState(weights, diagonal, ~pruned, gradient.gather(-1, listed), coupling, schur, found >= 0)
    least = SMALLEST_GAIN * problem.objective(distance).abs()
    for number in range(listed.shape[-1]):
        pulse()
        change, chosen, out = _best_pair(state, pattern, listed)
        use = (change < -least) & (number < allowed)
        if not bool(use.any()):
            break
        state = _bring_back(state, chosen, listed, use)
        state = _remove(state, out, problem.moments, inverted, use)
    return ~state.kept


def _best_pair(state: RowState, pattern: Pattern, listed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best change of each row, the place of p in the list, and u."""
    schur = state.schur.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    change = swap_change(
        state.weights.unsqueeze(-2), state.diagonal.unsqueeze(-2), state.gradient.unsqueeze(-1), state.coupling, schur
    )
    closed = ~(state.kept.unsqueeze(-2) & state.free.unsqueeze(-1))
    if pattern.keep_of is not None:
        group = torch.arange(change.shape[-1], device=change.device) // pattern.keep_of[1]
        closed = closed | (listed.unsqueeze(-1) // pattern.keep_of[1] != group)
    best, place = change.masked_fill_(closed, torch.inf).flatten(-2).min(-1)
    return best, place // change.shape[-1], place % change.shape[-1]


def _bring_back(state: RowState, chosen: Tensor, listed: Tensor, use: Tensor) -> RowState:
    """S grows by p: B gains v vᵀ/s on S and 1/s at p."""
    on, at = use.unsqueeze(-1), chosen.unsqueeze(-1)
    row = at.unsqueeze(-1)
    coupling = state.coupling.gather(-2, row.expand(*at.shape, state.coupling.shape[-1])).squeeze(-2)
    column = state.schur.gather(-2, row.expand(*at.shape, state.schur.shape[-1])).squeeze(-2)
    share = on / column.gather(-1, at)
    gradient = state.gradient.gather(-1, at)
    place = listed.gather(-1, at)
    weights = torch.addcmul(state.weights, coupling, gradient * share)
    diagonal = torch.addcmul(state.diagonal, coupling, coupling * share)
    scaled = (column * share).unsqueeze(-1)
    couplings = torch.addcmul(state.coupling, coupling.unsqueeze(-2), -scaled)
    here = place.unsqueeze(-2).expand(*couplings.shape[:-1], 1)
    return RowState(
        weights.scatter(-1, place, torch.where(on, -gradient * share, weights.gather(-1, place))),
        diagonal.scatter(-1, place, torch.where(on, share, diagonal.gather(-1, place))),
        state.kept.scatter(-1, place, on | state.kept.gather(-1, place)),
        state.gradient - column * gradient * share,
        couplings.scatter(-1, here, torch.where(on.unsqueeze(-1), scaled, couplings.gather(-1, here))),
        state.schur - scaled * column.unsqueeze(-2),
        state.free.scatter(-1, at, state.free.gather(-1, at) & ~on),
    )


def _remove(state: RowState, out: Tensor, moments: Tensor, inverted: Tensor, use: Tensor) -> RowState:
    """S loses u: B loses z zᵀ/z_u with its column z."""
    at = out.unsqueeze(-1)
    mask = state.kept.to(moments.dtype)
    right = torch.zeros_like(mask).scatter(-1, at, 1.0) * mask
    start = _rows_of(inverted, out) * mask
    column, residual = _solve(moments, inverted, mask, right, start, COLUMN_STEPS)
    pivot = (column.gather(-1, at) + dot(column, residual)).clamp_min(1.0)
    share = use.unsqueeze(-1) / pivot
    own = state.coupling.gather(-1, at.unsqueeze(-2).expand(*state.coupling.shape[:-1], 1))
    weight = state.weights.gather(-1, at)
    kept = state.kept.scatter(-1, at, state.kept.gather(-1, at) & ~use.unsqueeze(-1))
    now = kept.to(moments.dtype)
    return RowState(
        torch.addcmul(state.weights, column, -weight * share) * now,
        torch.addcmul(state.diagonal, column, -column * share).clamp_min(1.0),
        kept,
        state.gradient - own.squeeze(-1) * weight * share,
        torch.addcmul(state.coupling, column.unsqueeze(-2), -own * share.unsqueeze(-1)) * now.unsqueeze(-2),
        state.schur + own * own.transpose(-1, -2) * share.unsqueeze(-1),
        state.free,
    )


def _couplings(moments: Tensor, inverted: Tensor, pruned: Tensor, listed: Tensor) -> tuple[Tensor, Tensor]:
    """Return v (... x R x q x m) and T (... x R x q x q) for the listed p of each row.

    The start is the regression of p on all other inputs, read off Ã⁻¹; with the residual r, v·Ã_Sp + r·v is right to
    second order.
    """
    width = listed.shape[-1]
    flat = listed.flatten(-2)
    mask = (~pruned).to(moments.dtype).repeat_interleave(width, -2)
    full = _rows_of(moments, flat)
    own = inverted.diagonal(dim1=-2, dim2=-1).gather(-1, flat).unsqueeze(-1)
    start = _rows_of(inverted, flat).div_(-own).mul_(mask)
    split = (*listed.shape, moments.shape[-1])
    own_block = full.view(split).gather(-1, listed.unsqueeze(-2).expand(*listed.shape, width))
    right = full.mul_(mask)
    coupling, residual = _solve(moments, inverted, mask, right, start, COUPLING_STEPS)
    v, r = coupling.view(split), residual.view(split)
    schur = own_block - v @ right.view(split).transpose(-1, -2) - r @ v.transpose(-1, -2)
    floor = (1 / own).view(listed.shape)
    missing = (floor - schur.diagonal(dim1=-2, dim2=-1)).clamp_min(0.0)
    return v, schur + torch.diag_embed(missing)


def _solve(
    moments: Tensor, inverted: Tensor, mask: Tensor, right: Tensor, start: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Return x with x Ã_SS ≈ right on the kept entries of each row, and the residual: a few steps from the start.

    The start is written into: every array here is as large as all candidates' rows.
    """
    tiny = torch.finfo(moments.dtype).tiny
    product = (start @ moments).mul_(mask)
    scale = dot(start, right) / dot(start, product).clamp_min(tiny)  # the best multiple of the start costs nothing
    solution, residual = start.mul_(scale), torch.addcmul(right, -scale, product)
    direction = (residual @ inverted).mul_(mask)
    slack = dot(residual, direction)
    for step in range(steps):
        pulse()
        torch.matmul(direction, moments, out=product).mul_(mask)
        length = slack / dot(direction, product).clamp_min(tiny)
        solution.addcmul_(length, direction)
        residual.addcmul_(-length, product)
        if step + 1 < steps:
            ahead = torch.matmul(residual, inverted, out=product).mul_(mask)
            fresh = dot(residual, ahead)
            torch.addcmul(ahead, fresh / slack.clamp_min(tiny), direction, out=direction)
            slack = fresh
    return solution, residual


def _rows_of(matrix: Tensor, places: Tensor) -> Tensor:
    """Return the rows of a (batch of) matrix at `places` (... x n)."""
    return matrix.gather(-2, places.unsqueeze(-1).expand(*places.shape, matrix.shape[-1]))
