"""CBS-U for all rows of a layer at once: masked least squares by conjugate gradients, two products an iteration.

The kept entries solve e_S Ã_SS = s̃_S − e_P Ã_PS with e_P = −w̄_P. The directions are preconditioned by [Ã⁻¹]_SS, one
matrix for all rows. Because [Ã⁻¹]_SS ⪰ (Ã_SS)⁻¹, the number r[Ã⁻¹]_SS rᵀ/2 of a residual r bounds what a row's
objective still has to lose: it is the stopping rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.engine.layer.standard import Standard, dot, inverse, standard_form
from brainsurgeon.events.clock import pulse

TOLERANCE = 1e-4
MAX_ITERATIONS = 60
# Rows are worked on in pieces of so many bytes for each array; a constant, so that numbers never depend on free memory.
PIECE_BYTES = 1 << 29


@dataclass(frozen=True)
class Fit:
    """What a fit found: the distance from the trained weights, the iterations, and the rows short of the tolerance."""

    distance: Tensor
    iterations: int
    unfinished: int

    def notes(self, tolerance: float) -> tuple[str, ...]:
        """Say which rows did not reach the tolerance."""
        if not self.unfinished:
            return ()
        return (
            f"least squares: {self.unfinished} rows stopped after {self.iterations} iterations short of the "
            f"tolerance {tolerance:g}; raise the damping",
        )


def least_squares(
    weights: Tensor,
    moments: Tensor,
    pruned: Tensor,
    *,
    linear: Tensor | None = None,
    start: Tensor | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> tuple[Tensor, tuple[str, ...]]:
    """Return the best weights that are zero on `pruned`, and notes.

    Each row minimises w A wᵀ/2 − w bᵀ with b = w̄A, or the row of `linear`. A row is done when it lies within
    `tolerance` (relative) of its best objective.
    """
    problem = standard_form(weights, moments, None, linear)
    first = None if start is None else problem.distance_of(start, weights)
    fit = refit(problem, pruned, inverse(problem.moments)[0], first, tolerance, max_iterations)
    return problem.weights_of(fit.distance, weights).masked_fill(pruned, 0.0), fit.notes(tolerance)


def refit(
    problem: Standard,
    pruned: Tensor,
    inverted: Tensor,
    start: Tensor | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> Fit:
    """Solve the masked least squares in unit coordinates, piece of rows by piece; `inverted` is Ã⁻¹."""
    distance = torch.zeros_like(problem.weights) if start is None else start
    distance = torch.where(pruned, -problem.weights, distance)
    pieces, iterations, unfinished = [], 0, 0
    for piece in row_pieces(problem.weights):
        solver = (problem.rows(piece), ~pruned[..., piece, :], inverted, tolerance)
        found, used, done = _conjugate_gradients(*solver, distance[..., piece, :], max_iterations)
        if not bool(done.all()) and used < max_iterations:  # the recursion drifted: once more from the true residual
            found, again, done = _conjugate_gradients(*solver, found, max_iterations - used)
            used += again
        pieces.append(found)
        iterations, unfinished = max(iterations, used), unfinished + int((~done).sum())
    return Fit(pieces[0] if len(pieces) == 1 else torch.cat(pieces, -2), iterations, unfinished)


def _conjugate_gradients(
    problem: Standard, kept: Tensor, inverted: Tensor, tolerance: float, distance: Tensor, max_iterations: int
) -> tuple[Tensor, int, Tensor]:
    """Return the distance, the iterations, and which rows truly reached the tolerance (residual computed anew)."""
    mask = kept.to(distance.dtype)
    residual = problem.residual(distance) * mask
    ahead = (residual @ inverted) * mask
    slack = dot(residual, ahead)
    gain = _free_gain(problem, inverted)
    first, before = distance, problem.objective(distance).unsqueeze(-1)
    damage, limit = before + gain, 2 * tolerance
    # Rounding leaves a floor under the residual: below it directions are noise, which singular moments would amplify.
    floor = torch.finfo(distance.dtype).eps * dot(distance, distance)
    direction = ahead.clone()
    used = 0
    while used < max_iterations:
        open_ = (slack > limit * damage) & (slack > floor)
        if not bool(open_.any()):
            break
        pulse()
        used += 1
        product = (direction @ problem.moments) * mask
        curvature = dot(direction, product)
        step = torch.where(open_ & (curvature > 0), slack / curvature, 0.0)
        distance = torch.addcmul(distance, step, direction)
        residual = torch.addcmul(residual, -step, product)
        damage = damage - step * slack / 2
        ahead = (residual @ inverted) * mask
        fresh = dot(residual, ahead)
        direction = torch.addcmul(ahead, torch.where(open_, fresh / slack, 0.0), direction)
        slack = torch.where(open_, fresh, slack)
    residual = problem.residual(distance) * mask
    slack = dot(residual, (residual @ inverted) * mask)
    after = problem.objective(distance).unsqueeze(-1)
    distance = torch.where(after <= before, distance, first)
    done = slack <= 2 * limit * (after + gain) + 10 * floor
    return distance, used, done.squeeze(-1)


def _free_gain(problem: Standard, inverted: Tensor) -> Tensor | float:
    """Return what the rows could win with nothing pruned, s̃Ã⁻¹s̃ᵀ/2: damage is measured from there."""
    return 0.0 if problem.slope is None else dot(problem.slope, problem.slope @ inverted) / 2


def row_pieces(weights: Tensor, copies: int = 1, multiple: int = 1) -> list[slice]:
    """Cut the rows into pieces, of a multiple of rows, of at most PIECE_BYTES for each array of so many copies."""
    rows = weights.shape[-2]
    row_bytes = copies * math.prod(weights.shape[:-2]) * weights.shape[-1] * weights.element_size()
    step = max(1, PIECE_BYTES // max(1, row_bytes * multiple)) * multiple
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


def objective(
    weights: Tensor, trained: Tensor, moments: Tensor, scales: Tensor | None = None, linear: Tensor | None = None
) -> Tensor:
    """Return c_o[(w−w̄)A(w−w̄)ᵀ/2 − (w−w̄)(b−w̄A)ᵀ] of each row in float64: zero at the trained weights."""
    exact, values = moments.double(), []
    for piece in row_pieces(trained):
        reference = trained[..., piece, :].double()
        distance = weights[..., piece, :].double() - reference
        value = ((distance @ exact) * distance).sum(-1) / 2
        if linear is not None:
            value = value - ((linear[..., piece, :].double() - reference @ exact) * distance).sum(-1)
        values.append(value)
    total = torch.cat(values, -1)
    return total if scales is None else total * scales.double()
