"""Multi-start: a search from many starts that differ, of which the poorer half drops out again and again.

A swap search ends near where it began, so where it begins matters. RMP with few buckets stays near magnitude pruning,
with many it strays; which is better depends on the network and the sparsity. Here the starts come from rungs of
B/4, B and 4B buckets. Each is improved for a few steps, the better half by sample loss goes on, and so forth; only the
last one is searched to the end. All of that costs about as much as two or three searches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import BrainsurgeonError
from ..events import Event
from ..problem import Problem
from .given import Given
from .randomized import Randomized
from .wide_search import WideSearch

RUNGS = (1.0, 0.25, 4.0)
"""Buckets of each rung, in parts of the usual number; the usual one comes first."""


@dataclass(frozen=True)
class MultiStart:
    """Race `starts` searches from diverse draws: `short` steps each, then the better half, and the last to its end.

    `search` is any selection with a start and a number of steps: the wide search on the objective of CBS-S, or the
    recentred one. `start` says how the draws are made.
    """

    start: Randomized = field(default_factory=Randomized)
    search: Any = field(default_factory=WideSearch)
    starts: int = 8
    short: int = 3

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.starts < 1 or self.short < 1:
            raise BrainsurgeonError(f"starts and short must be at least 1, got {self}")
        check_parts(self.start, self.search)

    def __call__(self, problem: Problem) -> Tensor:
        """Return the mask of the search that came out of the race."""
        alive = diverse(problem, self.start, self.starts)
        while len(alive) > 1:
            found = [searched(problem, self.search, mask, max_steps=self.short) for mask in alive]
            alive = [found[k] for k in problem.judge.best_masks(found, (len(found) + 1) // 2)]
            problem.notify(Event("starts", self.starts - len(alive) + 1, self.starts))
        return searched(problem, self.search, alive[0])


def check_parts(start: Any, search: Any) -> None:
    """Refuse a start that cannot draw, and a search that cannot be told where to begin and when to end."""
    if not isinstance(start, Randomized):
        raise BrainsurgeonError(f"the starts are drawn: start must be a Randomized, got {start!r}")
    fields = {part.name for part in dataclasses.fields(search)} if dataclasses.is_dataclass(search) else set()
    if not {"start", "max_steps"} <= fields:
        raise BrainsurgeonError(
            f"search must be a dataclass with the fields start and max_steps, such as WideSearch(), got {search!r}"
        )


def diverse(problem: Problem, start: Randomized, count: int) -> list[Tensor]:
    """Return up to `count` different masks: the best draws of each rung by sample loss, the rungs taking turns."""
    usual = start.num_buckets or min(math.isqrt(problem.weights.numel()), 1000)
    # One more of each than its share: plain magnitude pruning may be among the best of every rung.
    draws, each = math.ceil(start.num_draws / len(RUNGS)), math.ceil(count / len(RUNGS)) + 1
    rungs = [
        dataclasses.replace(start, num_buckets=max(1, round(part * usual)), num_draws=draws).several(problem, each)
        for part in RUNGS[:count]
    ]
    turns = chain.from_iterable(zip_longest(*rungs))
    return _distinct([mask for mask in turns if mask is not None])[:count]


def searched(problem: Problem, search: Any, pruned: Tensor, **settings: Any) -> Tensor:
    """Run a search from a mask."""
    return dataclasses.replace(search, start=Given({"mask": pruned}), **settings)(problem)


def _distinct(masks: Sequence[Tensor]) -> list[Tensor]:
    found: list[Tensor] = []
    for mask in masks:
        if not any(torch.equal(mask, other) for other in found):
            found.append(mask)
    return found
