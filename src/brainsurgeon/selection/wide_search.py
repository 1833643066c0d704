"""The wide search: the best swap over many weights of high α and many of low β at once.

Algorithm 1 compares a weight with 2ρ + 1 others that happen to lie near it in another order. Here a step gathers the
`pool` weights of highest α and the `pool` of lowest β, with all γ between them, and takes the best swap of the whole
pool again and again, with exact impacts after each, until none improves; then the pool is gathered anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from ..problem import Problem, Selection
from .local_search import improve
from .pool import Pool, extremes
from .randomized import Randomized


@dataclass(frozen=True)
class WideSearch:
    """Steepest descent over swaps within a pool; `min_improvement`, `max_steps` and `patience` as in Algorithm 1.

    `swaps_per_step` bounds the swaps between two looks at the sample loss. The search runs from the best `starts` draws
    of the start, and the mask of smallest sample loss wins.
    """

    start: Selection = field(default_factory=Randomized)
    starts: int = 4
    pool: int = 256
    min_improvement: float = 1e-4
    swaps_per_step: int = 32
    max_steps: int = 50
    patience: int = 5

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = True

    def __call__(self, problem: Problem) -> Tensor:
        """Return the best mask found."""
        several = getattr(self.start, "several", None)
        starts = several(problem, self.starts) if several else [self.start(problem)]
        found = [improve(problem, pruned, self.step, self.max_steps, self.patience) for pruned in starts]
        return found[problem.judge.best_masks(found)[0]]

    def step(self, problem: Problem, pruned: Tensor, pressure: Tensor) -> list[tuple[int, int]]:
        """Return the swaps of one step, group by group of the budget."""
        quadratic, drift = problem.quadratic, problem.quadratic.drift(pressure)
        impact = quadratic.impact(drift, pruned)
        swaps = []
        for group in problem.budget.groups:
            inside, outside = group[pruned[group]], group[~pruned[group]]
            if inside.numel() and outside.numel():
                members, count = extremes(impact, inside, outside, self.pool)
                pool = Pool.gather(quadratic, drift, members)
                swaps += pool.descend(count, self.min_improvement, self.swaps_per_step)
        return swaps
