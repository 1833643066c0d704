"""The wide search: the best swap over many weights of high α and many of low β at once.

Algorithm 1 compares a weight with 2ρ + 1 others that happen to lie near it in another order. Here a step gathers the
`pool` weights of highest α and the `pool` of lowest β, with all γ between them, and takes the best swap of the whole
pool again and again, with exact impacts after each, until none improves; then the pool is gathered anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.selection.local_search import by_group, improve
from brainsurgeon.engine.selection.pool import Pool, extremes
from brainsurgeon.engine.selection.randomized import Randomized
from brainsurgeon.errors import BrainsurgeonError


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

    def __post_init__(self) -> None:
        if self.pool < 1 or self.starts < 1 or self.swaps_per_step < 1:
            raise BrainsurgeonError(f"pool, starts and swaps_per_step must be at least 1, got {self}")

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
        return by_group(problem, pruned, pressure, self._search)

    def _search(
        self, quadratic: QuadraticModel, pruned: Tensor, pressure: Tensor, inside: Tensor, outside: Tensor
    ) -> list[tuple[int, int]]:
        drift = quadratic.drift(pressure)
        members, count = extremes(quadratic.impact(drift, pruned), inside, outside, self.pool)
        pool = Pool.gather(quadratic, drift, members)
        return pool.descend(count, self.min_improvement, self.swaps_per_step)
