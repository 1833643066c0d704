"""Algorithm 1: the greedy swapping local search, to the letter where the letter is clear.

What the paper leaves open, and how it is read here:

* π and θ are sorted once a step (lines 9 and 13), θ by β_j − γ_{π₁j}; the window of the ii-th weight of π is
  θ[ii−ρ … ii+ρ], as printed. Section 7 says otherwise: "at the beginning of local search". `reorder=False` takes it at
  its word: both are sorted in the first step only, and weights that are swapped take one another's places. The
  search then ends after a step or two, at line 14 with weights that were swapped before, and hardly improves anything.
* The counter c counts the weights of P that could not be swapped: it rises for every i visited and falls back when
  i was swapped ("Goto 26" ends the loop over j). The scan of a step ends when c reaches τ.
* A weight swapped in this step is not touched again within it (J is excluded from the windows; π visits each i once).
* L(P) is compared after each step; the best P seen is returned, and the search ends after `patience` steps
  (noimp_max) without a better one, after `max_steps`, or when a step changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.selection.pool import Pool, shift
from brainsurgeon.engine.selection.randomized import Randomized
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.clock import pulse

Step = Callable[[Problem, Tensor, Tensor], list[tuple[int, int]]]
"""From a problem, P and H w_P to the swaps (i back, j pruned) of a step."""
GroupSearch = Callable[[QuadraticModel, Tensor, Tensor, Tensor, Tensor], list[tuple[int, int]]]

AHEAD = 128
"""Weights of π whose curvature is gathered at once; scans that go further gather again."""


@dataclass(frozen=True)
class LocalSearch:
    """Swap weights in and out of P while the quadratic model improves; keep the P of smallest sample loss.

    `min_improvement` is ε, `max_failures` τ, `window` ρ, `max_steps` and `patience` are steps_max and noimp_max.
    With `reorder` π and θ are sorted in every step, else in the first alone.
    """

    start: Selection = field(default_factory=Randomized)
    min_improvement: float = 1e-4
    max_failures: int = 20
    window: int = 10
    max_steps: int = 50
    patience: int = 5
    reorder: bool = True

    def __post_init__(self) -> None:
        if self.window < 0 or self.max_failures < 1:
            raise BrainsurgeonError(f"window must be at least 0 and max_failures at least 1, got {self}")

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = True

    def __call__(self, problem: Problem) -> Tensor:
        """Return P_F."""
        step = self.step if self.reorder else _OrderedOnce(self).step
        return improve(problem, self.start(problem), step, self.max_steps, self.patience)

    def step(self, problem: Problem, pruned: Tensor, pressure: Tensor) -> list[tuple[int, int]]:
        """Lines 5 to 30: return the swaps (i back, j pruned) of one step, group by group of the budget."""
        return by_group(problem, pruned, pressure, self._scan)

    def _scan(
        self, quadratic: QuadraticModel, pruned: Tensor, pressure: Tensor, inside: Tensor, outside: Tensor
    ) -> list[tuple[int, int]]:
        drift = quadratic.drift(pressure)
        impact = quadratic.impact(drift, pruned)
        return self.attempt(quadratic, drift, impact, *self.sequences(quadratic, impact, inside, outside))

    def sequences(
        self, quadratic: QuadraticModel, impact: Tensor, inside: Tensor, outside: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Lines 9 and 13: return π, the weights of P by falling α, and θ, the others by rising β_j − γ_{π₁j}."""
        pi = inside[impact[inside].argsort(descending=True, stable=True)]
        unit = torch.zeros_like(impact)
        unit[pi[0]] = 2 * quadratic.w[pi[0]]
        key = impact[outside] - (quadratic.w * quadratic.product(unit))[outside]
        return pi, outside[key.argsort(stable=True)]

    def attempt(
        self, quadratic: QuadraticModel, drift: Tensor, impact: Tensor, pi: Tensor, theta: Tensor
    ) -> list[tuple[int, int]]:
        """Lines 14 to 29: return the swaps, none where the first of π and the first of θ do not improve 2Q by ε."""
        change = impact[theta[0]] - quadratic.gamma(pi[:1], theta[:1]) - impact[pi[0]]
        return [] if float(change) > -self.min_improvement else self._visit(quadratic, drift, pi, theta)

    def _visit(self, quadratic: QuadraticModel, drift: Tensor, pi: Tensor, theta: Tensor) -> list[tuple[int, int]]:
        """Lines 17 to 29: go through π, each weight against its window of θ, until τ weights have failed."""
        swaps: list[tuple[int, int]] = []
        failures = 0
        for first in range(0, pi.numel(), AHEAD):
            pulse()
            front = pi[first : first + AHEAD]
            lower = max(0, first - self.window)
            behind = theta[lower : first + AHEAD + self.window]
            taken = {j for _, j in swaps}
            pool = self._pool_with(quadratic, drift, front, behind, swaps)
            free = np.array([index not in taken for index in behind.tolist()])
            for offset in range(front.numel()):
                rank = first + offset
                window = np.arange(max(0, rank - self.window), min(theta.numel(), rank + self.window + 1)) - lower
                window = window[window < behind.numel()]
                window = window[free[window]]
                good = (pool.change(offset, front.numel() + window) <= -self.min_improvement).nonzero()[0]
                if good.size:
                    j = int(window[good[0]])
                    pool.swap(offset, front.numel() + j)
                    free[j] = False
                    swaps.append((int(front[offset]), int(behind[j])))
                else:
                    failures += 1
                    if failures >= self.max_failures:
                        return swaps
        return swaps

    def _pool_with(
        self, quadratic: QuadraticModel, drift: Tensor, front: Tensor, behind: Tensor, swaps: list[tuple[int, int]]
    ) -> Pool:
        """Gather the pool as it stands after the swaps already made in this step."""
        pool = Pool.gather(quadratic, drift, torch.cat([front, behind]))
        if swaps:
            back = torch.tensor([i for i, _ in swaps], device=front.device)
            gone = torch.tensor([j for _, j in swaps], device=front.device)
            moved = quadratic.gamma(pool.indices, gone).sum(1) - quadratic.gamma(pool.indices, back).sum(1)
            pool.drift += moved.cpu().numpy()
        return pool


@dataclass
class _OrderedOnce:
    """The steps of a search whose π and θ are sorted in its first step; a group is known by its first weight."""

    search: LocalSearch
    sequences: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def step(self, problem: Problem, pruned: Tensor, pressure: Tensor) -> list[tuple[int, int]]:
        return by_group(problem, pruned, pressure, self._scan)

    def _scan(
        self, quadratic: QuadraticModel, pruned: Tensor, pressure: Tensor, inside: Tensor, outside: Tensor
    ) -> list[tuple[int, int]]:
        drift = quadratic.drift(pressure)
        impact = quadratic.impact(drift, pruned)
        group = min(int(inside.min()), int(outside.min()))
        if group not in self.sequences:
            self.sequences[group] = self.search.sequences(quadratic, impact, inside, outside)
        pi, theta = self.sequences[group]
        swaps = self.search.attempt(quadratic, drift, impact, pi, theta)
        self.sequences[group] = _exchanged(pi, theta, swaps)
        return swaps


def _exchanged(pi: Tensor, theta: Tensor, swaps: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Return π and θ with the weights of each swap in one another's places."""
    pi, theta = pi.clone(), theta.clone()
    for back, gone in swaps:
        here, there = pi == back, theta == gone
        pi[here], theta[there] = gone, back
    return pi, theta


def by_group(problem: Problem, pruned: Tensor, pressure: Tensor, search: GroupSearch) -> list[tuple[int, int]]:
    """Search each group of the budget in turn; a group sees the swaps of those before it."""
    swaps: list[tuple[int, int]] = []
    found: list[tuple[int, int]] = []
    for group in problem.budget.groups:
        if found:
            pressure = pressure + problem.quadratic.product(shift(problem.quadratic, found))
        inside, outside = group[pruned[group]], group[~pruned[group]]
        found = []
        if inside.numel() and outside.numel():
            found = search(problem.quadratic, pruned, pressure, inside, outside)
        swaps += found
    return swaps


def improve(problem: Problem, pruned: Tensor, step: Step, max_steps: int, patience: int) -> Tensor:
    """Run the outer loop of Algorithm 1 (lines 3, 4 and 27 to 36) around any way of finding the swaps of a step."""
    with problem.clock.measure("search"):
        return _improve(problem, pruned.clone(), step, max_steps, patience)


def _improve(problem: Problem, pruned: Tensor, step: Step, max_steps: int, patience: int) -> Tensor:
    quadratic = problem.quadratic
    best, last_better = pruned.clone(), 0
    pressure, cost = quadratic.pressure(pruned), quadratic.cost(pruned)
    for number in range(1, max_steps + 1):
        swaps = step(problem, pruned, pressure)
        if not swaps:
            break
        moved = shift(quadratic, swaps)
        image = quadratic.product(moved)
        cost += float(moved @ pressure + moved @ image / 2)
        if quadratic.linear is not None:
            cost -= float(quadratic.linear @ moved)
        pressure = pressure + image
        for back, gone in swaps:
            pruned[back], pruned[gone] = False, True
        if problem.judge.is_better(pruned, best):
            best, last_better = pruned.clone(), number
        problem.notify(Event("search", number, max_steps, {"cost": cost, "swaps": len(swaps), "best": last_better}))
        if number - last_better > patience:
            break
    return best
