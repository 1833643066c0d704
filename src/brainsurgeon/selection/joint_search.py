"""A search that sees the update: the cost of P after the others have made up for it, ½w_Pᵀ([H⁻¹]_PP)⁻¹w_P.

At the best step d for P, q = Hd + a is zero on the kept weights S. Let h be the stiffness of a weight while the others
follow it: H_jj − H_jSH_SS⁻¹H_Sj outside S, 1/[H_SS⁻¹]_ii inside. Bringing j back gains ½q_j²/h_j, removing i costs
½(w_i + d_i)²h_i, both exactly. A round brings the most missed weights back, solves again, and removes as many of those
that are then needed least: a subspace pursuit for the ℓ0-constrained problem, CBS-S and CBS-U in one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from ..errors import BrainsurgeonError
from ..events import Event
from ..problem import Problem, Selection
from .woodfisher import WoodFisher


@dataclass(frozen=True)
class JointSearch:
    """Exchange what the updated model misses most for what it needs least, a `share` of P at first."""

    start: Selection = field(default_factory=WoodFisher)
    max_steps: int = 12
    share: float = 0.05
    min_improvement: float = 1e-4

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.max_steps < 0 or self.min_improvement < 0:
            raise BrainsurgeonError(f"max_steps and min_improvement must not be negative, got {self}")
        if not 0 < self.share <= 1:
            raise BrainsurgeonError(f"share must lie between 0 and 1 (the part of P to exchange), got {self.share}")

    def __call__(self, problem: Problem) -> Tensor:
        """Return the best mask found."""
        pruned = self.start(problem)
        with problem.clock.measure("search"):
            return self.improve(problem, pruned)

    def improve(self, problem: Problem, pruned: Tensor) -> Tensor:
        """Exchange weights, many at first, until nothing more is gained."""
        quadratic = problem.quadratic
        step = quadratic.compensate(pruned)
        cost = quadratic.cost_of_step(step)
        share = self.share
        for number in range(1, self.max_steps + 1):
            mask = self._exchanged(problem, pruned, step, share)
            swaps = int((mask & ~pruned).sum())
            tried = quadratic.compensate(mask) if swaps else step
            lower = quadratic.cost_of_step(tried) if swaps else cost
            problem.notify(Event("search", number, self.max_steps, {"swaps": swaps, "cost": min(cost, lower)}))
            if lower < cost * (1 - self.min_improvement):
                pruned, step, cost = mask, tried, lower
                continue
            if share * problem.budget.total < 1:
                break
            share /= 4  # fewer at once are less in one another's way
        return pruned

    def _exchanged(self, problem: Problem, pruned: Tensor, step: Tensor, share: float) -> Tensor:
        """Return the mask after a share of each group came back and as many went."""
        quadratic = problem.quadratic
        slope = quadratic.product(step) + (0.0 if quadratic.linear is None else quadratic.linear)
        gain = slope.square() / (2 * quadratic.stiffness(~pruned))
        fuller, numbers = pruned.clone(), []
        for group in problem.budget.groups:
            inside = group[pruned[group]]
            numbers.append(min(math.ceil(share * inside.numel()), inside.numel()))
            fuller[inside[gain[inside].argsort(descending=True, stable=True)[: numbers[-1]]]] = False
        again = quadratic.compensate(fuller)
        cost = (quadratic.w + again).square() * quadratic.stiffness(~fuller) / 2
        mask = fuller.clone()
        for group, number in zip(problem.budget.groups, numbers, strict=True):
            kept = group[~fuller[group]]
            mask[kept[cost[kept].argsort(stable=True)[:number]]] = True
        return mask
