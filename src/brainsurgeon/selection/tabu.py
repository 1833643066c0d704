"""Tabu search: swaps on past a local optimum, with a memory that forbids going straight back.

The wide search stops where no swap of its pool lowers the objective of CBS-S. Here the best swap is taken all the same,
even uphill, and a weight that has just moved stays where it is for a while (it is tabu), unless moving it gives the
lowest objective so far. What a step returns is the way from where it began to the lowest point that it came by: the
exchange of many weights for many others, which no sequence of single improving swaps would have made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import BrainsurgeonError
from ..problem import Problem, Selection
from ..quadratic import QuadraticModel
from .local_search import by_group, improve
from .pool import Pool, extremes
from .randomized import Randomized


@dataclass(frozen=True)
class Tabu:
    """Walk by best swaps within a pool; a weight that moved rests for `tenure` moves on average, drawn at random.

    Rests of one length let a walk go round in circles. In a small pool they are cut, so that half of it stays free.
    A step ends `stall` moves after its lowest point, or after `swaps_per_step` new lowest points, when the sample loss
    is looked at and the pool gathered anew; `min_improvement`, `max_steps` and `patience` are as in Algorithm 1.
    """

    start: Selection = field(default_factory=Randomized)
    pool: int = 256
    tenure: int = 16
    stall: int = 64
    min_improvement: float = 1e-4
    swaps_per_step: int = 32
    max_steps: int = 50
    patience: int = 5

    def __post_init__(self) -> None:
        if self.pool < 1 or self.tenure < 0 or self.stall < 0 or self.swaps_per_step < 1:
            raise BrainsurgeonError(
                f"pool and swaps_per_step must be at least 1, tenure and stall at least 0, got {self}"
            )

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = True

    def __call__(self, problem: Problem) -> Tensor:
        """Return the best mask found."""
        return improve(problem, self.start(problem), self.step, self.max_steps, self.patience)

    def step(self, problem: Problem, pruned: Tensor, pressure: Tensor) -> list[tuple[int, int]]:
        """Return the swaps of one step, group by group of the budget."""
        draws = np.random.default_rng(int(torch.randint(2**31, (1,), generator=problem.generator)))

        def search(
            quadratic: QuadraticModel, pruned: Tensor, pressure: Tensor, inside: Tensor, outside: Tensor
        ) -> list[tuple[int, int]]:
            drift = quadratic.drift(pressure)
            members, count = extremes(quadratic.impact(drift, pruned), inside, outside, self.pool)
            lowest = self._walk(Pool.gather(quadratic, drift, members), count, draws)
            names, before = members.cpu().numpy(), np.arange(members.numel()) < count
            return list(zip(names[before & ~lowest].tolist(), names[~before & lowest].tolist(), strict=True))

        return by_group(problem, pruned, pressure, search)

    def _walk(self, pool: Pool, inside: int, draws: np.random.Generator) -> np.ndarray:
        """Return which members are pruned at the lowest point of the walk."""
        # The model's own diagonal is rounded otherwise: a circle of swaps would seem to gain a little each time.
        pool.self_impact = pool.gamma.diagonal() / 2
        back, gone = np.arange(inside), np.arange(inside, pool.drift.size)
        between = pool.gamma[:inside, inside:].copy()
        resting = np.zeros(pool.drift.size)  # the move at which a member may move again
        state, value = np.arange(pool.drift.size) < inside, 0.0
        best, least, lows, stalled, move = state.copy(), 0.0, 0, 0, 0
        longest = min(2 * self.tenure, back.size // 2, gone.size // 2)
        while lows < self.swaps_per_step and stalled <= self.stall:
            change = pool.beta(gone)[None, :] - between - pool.alpha(back)[:, None]
            free = (resting[back] <= move)[:, None] & (resting[gone] <= move)[None, :]
            free |= value + change <= least - self.min_improvement  # the aspiration
            change[~free] = np.inf
            i, j = divmod(int(change.argmin()), gone.size)
            if not np.isfinite(change[i, j]):
                break
            value += change[i, j]
            pool.swap(int(back[i]), int(gone[j]))
            back[i], gone[j] = gone[j], back[i]
            state[back[i]], state[gone[j]] = True, False
            between[i], between[:, j] = pool.gamma[back[i], gone], pool.gamma[back, gone[j]]
            move += 1
            resting[[back[i], gone[j]]] = move + draws.integers(0, longest + 1, 2)
            if value <= least - self.min_improvement:
                best, least, lows, stalled = state.copy(), value, lows + 1, 0
            else:
                stalled += 1
        return best
