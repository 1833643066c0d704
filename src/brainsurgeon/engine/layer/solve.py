"""One layer from trained weights to pruned ones: mask by ADMM, least squares, swaps, least squares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from brainsurgeon.engine.layer.admm import Penalties, admm_mask, alone
from brainsurgeon.engine.layer.least_squares import TOLERANCE, objective, refit
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.standard import inverse, standard_form
from brainsurgeon.engine.layer.swaps import improve_by_swaps


@dataclass(frozen=True)
class LayerProblem:
    """Prune exactly `count` weights of a linear map so that Σ_o c_o[w_o A w_oᵀ/2 − w_o b_oᵀ] is least.

    `weights` (w̄) is R x m, `moments` (A, damped) m x m, `scales` (c) R; G groups have a leading dimension G in all of
    them. `linear` (b) is w̄A when it is left out, and `squares` (E[x²] of each input, not damped) the diagonal of A.
    Where these are some of a layer's rows, and others solve the rest at the same time, `add_up` adds a count to theirs,
    and `mean_scale` is that of all the layer's rows.
    """

    weights: Tensor
    moments: Tensor
    count: int
    pattern: Pattern = field(default_factory=Pattern)
    scales: Tensor | None = None
    linear: Tensor | None = None
    squares: Tensor | None = None
    add_up: Callable[[Tensor], Tensor] = alone
    mean_scale: Tensor | None = None


@dataclass(frozen=True)
class Effort:
    """How much work a layer gets: steps of ADMM, rounds of swaps, the tolerance of least squares."""

    admm_steps: int = 24
    swap_rounds: int = 2
    tolerance: float = TOLERANCE
    swap_tolerance: float = 1e-3


@dataclass(frozen=True)
class LayerSolution:
    """The pruned layer: weights with exact zeros, the mask (True = pruned), its error, and what should be known.

    `error` is the objective above its value at the trained weights, in float64.
    """

    weights: Tensor
    pruned: Tensor
    error: float
    notes: tuple[str, ...] = ()


def solve_layer(problem: LayerProblem, effort: Effort | None = None) -> LayerSolution:
    """Solve a layer's problem; device and dtype follow the weights."""
    work = effort or Effort()
    problem.pattern.check_count(problem.weights.shape, problem.count)
    unit = standard_form(problem.weights, problem.moments, problem.scales, problem.linear, problem.mean_scale)
    pruned, distance = admm_mask(unit, problem.pattern, problem.count, Penalties(work.admm_steps), problem.add_up)
    inverted, _ = inverse(unit.moments)
    fit = refit(unit, pruned, inverted, distance, work.tolerance)
    if work.swap_rounds:
        swapped = improve_by_swaps(
            unit, problem.pattern, pruned, fit.distance, inverted, work.swap_rounds, work.swap_tolerance
        )
        pruned = swapped.pruned
        fit = refit(unit, pruned, inverted, swapped.distance, work.tolerance)
    weights = unit.weights_of(fit.distance, problem.weights).masked_fill(pruned, 0.0)
    if not problem.pattern.feasible(pruned, problem.count):
        raise AssertionError(f"the mask of a layer must have exactly {problem.count} pruned weights in its pattern")
    error = objective(weights, problem.weights, problem.moments, problem.scales, problem.linear)
    return LayerSolution(weights, pruned, float(error.sum()), fit.notes(work.tolerance))
