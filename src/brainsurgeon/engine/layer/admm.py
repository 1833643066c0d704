"""A layer's mask by the alternating direction method of multipliers (ADMM).

Split the weights into X, which fits, and D, which is feasible, and let them agree:
X = argmin of the layer's quadratic model + ρ/2 ‖X − D + V/ρ‖², D = the largest of X + V/ρ, V += ρ(X − D).
A small ρ lets the mask move, a large one freezes it; ρ grows from one to the other.
The work is in unit coordinates, so that rows and inputs of any scale share one ρ and one ranking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.standard import Standard, inverse
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse

# Where masks of correlated inputs begin to move and where they stand still, in unit coordinates.
FIRST_PENALTY = 0.07
LAST_PENALTY = 0.7
# Steps beyond X (over-relaxation) make the multipliers travel faster at no cost.
RELAXATION = 1.6
# The share of the kept places that may still change when the search stops.
SETTLED = 5e-4


@dataclass(frozen=True)
class Penalties:
    """How ρ grows: from `first` to `last` in `steps` iterations, and on at this pace until the mask stands still.

    ρ is held for `hold` iterations, so that a factor serves several.
    """

    steps: int = 24
    hold: int = 4
    first: float = FIRST_PENALTY
    last: float = LAST_PENALTY

    def __post_init__(self) -> None:
        if min(self.steps, self.hold) < 1 or not 0 < self.first <= self.last:
            raise BrainsurgeonError(f"ADMM needs at least one step and 0 < first ≤ last, got {self}")

    @property
    def growth(self) -> float:
        """The factor of ρ from one value to the next."""
        return float((self.last / self.first) ** (self.hold / self.steps))


def alone(count: Tensor) -> Tensor:
    """Return a count as it is: no one else solves rows of the same layer."""
    return count


def admm_mask(
    problem: Standard,
    pattern: Pattern,
    count: int,
    penalties: Penalties | None = None,
    add_up: Callable[[Tensor], Tensor] = alone,
) -> tuple[Tensor, Tensor]:
    """Return the mask (True = pruned) and the distance e of D from the trained weights, a start for least squares.

    `add_up` adds a count to those of the others who solve other rows of the layer, so that all stop at the same step.
    """
    schedule = penalties or Penalties()
    trained = problem.weights
    pruned = pattern.project(trained.square(), count)
    feasible = trained.masked_fill(pruned, 0.0)
    multiplier = torch.zeros_like(trained)
    penalty, inverted = schedule.first, problem.moments
    kept = add_up(torch.tensor(trained.numel() - count, device=trained.device))
    settled = SETTLED * max(1, int(kept))
    for step in range(2 * schedule.steps):
        pulse()
        if step % schedule.hold == 0:
            penalty = schedule.first * schedule.growth ** (step // schedule.hold)
            inverted, _ = inverse(problem.moments, penalty)
        pull = (feasible - trained) * penalty - multiplier
        if problem.slope is not None:
            pull = pull + problem.slope
        fitted = trained + pull @ inverted
        target = torch.lerp(feasible, fitted, RELAXATION).add_(multiplier, alpha=1 / penalty)
        chosen = pattern.project(target.square(), count)
        feasible = target.masked_fill(chosen, 0.0)
        multiplier = (target - feasible).mul_(penalty)
        moved, pruned = chosen != pruned, chosen
        if step + 1 >= schedule.steps // 2 and int(add_up(moved.sum())) <= 2 * settled:
            break
    return pruned, feasible - trained
