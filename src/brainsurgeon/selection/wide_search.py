"""The wide search: the best swap over many weights of high α and many of low β at once.

Algorithm 1 compares a weight with 2ρ + 1 others that happen to lie near it in another order. Here a step gathers the
`pool` weights of highest α and the `pool` of lowest β, with all γ between them, and takes the best swap of the whole
pool again and again, with exact impacts after each, until none improves; then the pool is gathered anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..problem import Problem, Selection
from .local_search import improve
from .pool import Pool
from .randomized import Randomized


@dataclass(frozen=True)
class WideSearch:
    """Steepest descent over swaps within a pool; `min_improvement`, `max_steps` and `patience` as in Algorithm 1.

    `swaps_per_step` bounds the swaps between two looks at the sample loss.
    """

    start: Selection = field(default_factory=Randomized)
    pool: int = 256
    min_improvement: float = 1e-4
    swaps_per_step: int = 32
    max_steps: int = 50
    patience: int = 5

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = True

    def __call__(self, problem: Problem) -> Tensor:
        """Return the best mask found."""
        return improve(problem, self.start(problem), self.step, self.max_steps, self.patience)

    def step(self, problem: Problem, pruned: Tensor, pressure: Tensor) -> list[tuple[int, int]]:
        """Return the swaps of one step, group by group of the budget."""
        impact = problem.quadratic.impact(pressure, pruned)
        swaps = []
        for group in problem.budget.groups:
            inside, outside = group[pruned[group]], group[~pruned[group]]
            if inside.numel() and outside.numel():
                front = inside[impact[inside].topk(min(self.pool, inside.numel())).indices]
                behind = outside[impact[outside].topk(min(self.pool, outside.numel()), largest=False).indices]
                pool = Pool.gather(problem.quadratic, pressure, torch.cat([front, behind]))
                swaps += self._descend(pool, front.numel())
        return swaps

    def _descend(self, pool: Pool, inside: int) -> list[tuple[int, int]]:
        """Take the best swap of the pool until none improves by ε; a weight moves once a step."""
        back, gone = np.arange(inside), np.arange(inside, pool.drift.size)
        between = pool.gamma[:inside, inside:]
        open_i, open_j = np.zeros(back.size), np.zeros(gone.size)  # ∞ once moved
        swaps: list[tuple[int, int]] = []
        while len(swaps) < self.swaps_per_step:
            change = (pool.beta(gone) + open_j)[None, :] - between - (pool.alpha(back) - open_i)[:, None]
            i, j = divmod(int(change.argmin()), gone.size)
            if change[i, j] > -self.min_improvement:
                break
            pool.swap(i, inside + j)
            open_i[i] = open_j[j] = np.inf
            swaps.append((int(pool.indices[i]), int(pool.indices[inside + j])))
        return swaps
