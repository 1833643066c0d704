"""The recentred search: swaps by the true gradient where the search stands, and by the curvature's γ.

The quadratic model is built at the trained weights, and at high sparsity a mask is far from there: its costs no longer
order masks as the loss does. Here each round takes the mean gradient g of the sample loss at the masked weights
w − w_P. In the quadratic model recentred at that point, 2w_i(Hw_P)_i − 2w_ia_i of α and β becomes −2w_ig_i, while γ
and w_i²H_ii stay. The best swaps of a pool are lined up, and the loss itself says how many of them to take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.selection.local_search import LocalSearch, by_group
from brainsurgeon.engine.selection.pool import Pool, extremes
from brainsurgeon.engine.selection.randomized import Randomized
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.clock import TimeUp

STIFFEN = 4.0
REACH = 4
"""A round takes at most so many times the swaps of the last that took any: what is far beyond is never chosen."""
STARTED = 0.5
"""The share of the time left that the start may take, where time is limited."""
LEAST_STEPS, MOST_STEPS = 6, 50
"""Rounds, where their number is not given: as many of these as are cheap for the network at hand."""


@dataclass(frozen=True)
class RecentredSearch:
    """Line up the best swaps at the masked weights, take as many as the sample loss likes, and look again.

    A round offers at most four times the swaps of the last that took any, in each group of the budget. One of which
    less than a quarter is taken makes the curvature four times as stiff for the next, one taken whole half as stiff.
    The search ends when nothing is taken at `max_stiffness`, or after `max_steps` rounds: by default 6 to 50, as many
    as are cheap for the network at hand. Where time is limited, half of it goes to the start at most; one that is not
    found by then is magnitude's mask, and a round that is not finished is left out.

    `start` is Algorithm 2 by default. Where gradients are so dear that not even six rounds are cheap, Algorithm 1 goes
    on from its mask before the first round: its swaps cost no gradient.
    """

    start: Selection = field(default_factory=Randomized)
    pool: int = 512
    min_improvement: float = 1e-4
    max_steps: int | None = None
    stiffness: float = 32.0
    max_stiffness: float = 4096.0

    def __post_init__(self) -> None:
        if self.pool < 1 or self.stiffness <= 0:
            raise BrainsurgeonError(f"pool must be at least 1 and stiffness positive, got {self}")

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = True

    def __call__(self, problem: Problem) -> Tensor:
        """Return the best mask found."""
        cheap = problem.judge.affordable_gradients(MOST_STEPS)
        rounds = max(cheap, LEAST_STEPS) if self.max_steps is None else self.max_steps
        try:
            with problem.clock.within(STARTED * problem.clock.left):
                pruned = self._started(problem, dear=cheap < LEAST_STEPS)
        except TimeUp:
            pruned = problem.budget.lowest(problem.weights.abs())
        try:
            with problem.clock.measure("search"):
                for better in self._rounds(problem, pruned, rounds):
                    pruned = better
        except TimeUp:  # what the rounds before it found is no worse
            pass
        return pruned

    def _started(self, problem: Problem, dear: bool) -> Tensor:
        """Return where the search begins; another start than Algorithm 2's draws is left as it is."""
        draws = isinstance(self.start, Randomized)
        return LocalSearch(self.start)(problem) if dear and draws else self.start(problem)

    def _rounds(self, problem: Problem, pruned: Tensor, rounds: int) -> Iterator[Tensor]:
        """Yield the mask after each round that took a swap."""
        stiffness, drift, refused, reach = self.stiffness, None, False, self.pool
        longest, left = 0.0, problem.clock.left
        for number in range(1, rounds + 1):
            if left < longest:  # there is no time for another round
                break
            if drift is None:
                drift = -2 * problem.quadratic.w * problem.judge.gradient(pruned)
            swaps = self._line_up(problem, pruned, drift, stiffness, reach)
            lengths = _quarterings(len(swaps))
            masks = [pruned] + [_swapped(pruned, swaps[:length]) for length in lengths]
            best = problem.judge.best_masks(masks)[0] if lengths else 0
            taken = lengths[best - 1] if best else 0
            problem.notify(Event("search", number, rounds, {"swaps": taken, "stiffness": stiffness}))
            if problem.clock.is_limited:
                longest, left = max(longest, left - problem.clock.left), problem.clock.left
            if taken:
                pruned, drift, refused, reach = masks[best], None, False, REACH * taken
                stiffness = self._adapted(stiffness, taken, len(swaps))
                yield pruned
            elif swaps and stiffness < self.max_stiffness:
                stiffness, refused = min(stiffness * STIFFEN, self.max_stiffness), True
            elif not swaps and stiffness > 1 and not refused:  # perhaps the model is too stiff
                stiffness = max(stiffness / STIFFEN, 1.0)
            else:
                break

    def _adapted(self, stiffness: float, taken: int, offered: int) -> float:
        if 4 * taken < offered:
            return min(stiffness * STIFFEN, self.max_stiffness)
        return max(stiffness / 2, 1.0) if taken == offered else stiffness

    def _line_up(
        self, problem: Problem, pruned: Tensor, drift: Tensor, stiffness: float, most: int
    ) -> list[tuple[int, int]]:
        """Return the swaps of a round, best first; a group of the budget sees those of the groups before it."""
        quadratic = problem.quadratic

        def search(
            _: QuadraticModel, pruned: Tensor, pressure: Tensor, inside: Tensor, outside: Tensor
        ) -> list[tuple[int, int]]:
            here = drift + 2 * stiffness * quadratic.w * pressure
            members, count = extremes(quadratic.impact(here, pruned, stiffness), inside, outside, self.pool)
            pool = Pool.gather(quadratic, here, members, stiffness)
            return pool.descend(count, self.min_improvement, most)

        # The pressure is counted from where the search stands: zero there.
        return by_group(problem, pruned, torch.zeros_like(drift), search)


def _quarterings(count: int) -> list[int]:
    """Return count, count/4, count/16, … down to 1."""
    return [count >> k for k in range(0, count.bit_length(), 2)]


def _swapped(pruned: Tensor, swaps: list[tuple[int, int]]) -> Tensor:
    mask = pruned.clone()
    back, gone = torch.tensor(swaps, device=pruned.device).T
    mask[back], mask[gone] = False, True
    return mask
