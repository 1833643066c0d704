"""Path relinking: walk from one good mask to another, and look at the masks on the way.

Good masks agree on most weights. What lies between two of them is small enough to go through: from the better one, the
best next swap (by the quadratic model) of those that lead to the other, until it is reached. The sample loss looks at a
few masks of that path; where one of them is better than both ends, a search goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import BrainsurgeonError
from ..events import Event
from ..problem import Problem
from ..quadratic import QuadraticModel
from .local_search import by_group
from .multi_start import check_parts, diverse, searched
from .pool import Pool, extremes
from .randomized import Randomized
from .recentred_search import RecentredSearch


@dataclass(frozen=True)
class Relinking:
    """Search from `elite` diverse draws, then relink the best mask with each of the others.

    `search` is any selection with a start and a number of steps; `stops` masks of each path are looked at; `pool` swaps
    are lined up at a time.
    """

    start: Randomized = field(default_factory=Randomized)
    search: Any = field(default_factory=RecentredSearch)
    elite: int = 3
    stops: int = 7
    pool: int = 256

    def __post_init__(self) -> None:
        if self.elite < 2 or self.stops < 1 or self.pool < 1:
            raise BrainsurgeonError(f"elite must be at least 2, stops and pool at least 1, got {self}")
        check_parts(self.start, self.search)

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = True

    def __call__(self, problem: Problem) -> Tensor:
        """Return the best mask found."""
        masks = [searched(problem, self.search, mask) for mask in diverse(problem, self.start, self.elite)]
        best, *guides = (masks[k] for k in problem.judge.best_masks(masks, len(masks)))
        for number, guide in enumerate(guides, 1):
            path = self.path(problem, best, guide)
            chosen = problem.judge.best_masks([best, *path])[0]
            problem.notify(Event("relinking", number, len(guides), {"stop": chosen}))
            if chosen:
                best = searched(problem, self.search, path[chosen - 1])
        return best

    def path(self, problem: Problem, here: Tensor, there: Tensor) -> list[Tensor]:
        """Return the masks at evenly spaced stops on the way between two masks of the same budget, both left out."""
        swaps = walk(problem, here, there, self.pool)
        places = sorted({len(swaps) * k // (self.stops + 1) for k in range(1, self.stops + 1)} - {0})
        return [_swapped(here, swaps[:place]) for place in places]


def walk(problem: Problem, here: Tensor, there: Tensor, pool: int) -> list[tuple[int, int]]:
    """Return the swaps that lead from one mask to the other, the best next one of those lined up each time."""

    def towards(
        quadratic: QuadraticModel, pruned: Tensor, pressure: Tensor, inside: Tensor, outside: Tensor
    ) -> list[tuple[int, int]]:
        inside, outside = inside[~there[inside]], outside[there[outside]]
        drift = quadratic.drift(pressure)
        members, count = extremes(quadratic.impact(drift, pruned), inside, outside, pool)
        # Uphill too: a path has to arrive.
        return Pool.gather(quadratic, drift, members).descend(count, -torch.inf, count) if count else []

    swaps: list[tuple[int, int]] = []
    while not torch.equal(here, there):
        leg = by_group(problem, here, problem.quadratic.pressure(here), towards)
        swaps += leg
        here = _swapped(here, leg)
    return swaps


def _swapped(pruned: Tensor, swaps: Sequence[tuple[int, int]]) -> Tensor:
    mask = pruned.clone()
    back, gone = torch.tensor(swaps, device=pruned.device).T
    mask[back], mask[gone] = False, True
    return mask
