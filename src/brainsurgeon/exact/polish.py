"""Exact polish: take a mask and solve small parts of it to optimality, again and again.

A swap search stops where no exchange of one weight for another helps. Here, from there on, some forty weights at a
time, pruned and kept, are freed while all others stay, and the best way of pruning as many of them as before is found
by branch and bound: exchanges of many for many. The cost of CBS-S can only fall.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.selection.pool import Pool, extremes
from brainsurgeon.engine.selection.wide_search import WideSearch
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.exact.quadratic_program import minimise
from brainsurgeon.exact.relaxed import Relaxed

FINE = 1e-9
"""The least improvement that counts, relative to the cost."""
MAX_NODES = 20_000
"""A neighbourhood that is not solved by then gives its best so far: the next one is better use of the time."""


@dataclass(frozen=True)
class Polish:
    """Descend by swaps, then re-solve neighbourhoods of `neighbourhood` weights exactly, for `seconds` or `rounds`.

    The neighbourhoods are taken from a pool of the `pool` weights of highest α and of lowest β: one weight at random,
    and around it those that are cheap to exchange and interact most with it (|γ| large). After `patience` of them in a
    row have brought nothing, the pool is gathered anew; when a fresh pool brings nothing either, the best mask so far
    is shaken (some weights of the pool are exchanged at random) and the search goes on from there, while there is time.
    """

    start: Selection = field(default_factory=Relaxed)
    neighbourhood: int = 40
    seconds: float = 10.0
    rounds: int | None = None
    pool: int = 512
    patience: int = 20

    uses_curvature: ClassVar[bool] = True

    @property
    def uses_loss(self) -> bool:
        """Only where the start does."""
        return getattr(self.start, "uses_loss", True)

    def __post_init__(self) -> None:
        endless = self.rounds is None and not self.seconds < float("inf")
        if self.neighbourhood < 2 or self.pool < 1 or self.patience < 1 or not self.seconds >= 0 or endless:
            raise BrainsurgeonError(
                "neighbourhood must be at least 2, pool and patience at least 1, and seconds 0 or more and not endless "
                f"(or rounds given), got {self}"
            )

    def __call__(self, problem: Problem) -> Tensor:
        """Return the polished mask; on Ctrl-C what there is by then."""
        pruned = self.start(problem).clone()
        search = _Polishing(self, problem, pruned)
        with problem.clock.measure("polish"):
            try:
                search.run()
            except KeyboardInterrupt:
                problem.notify(Event("polish interrupted: the mask so far is kept", search.rounds, self.rounds))
        return search.best


class _Polishing:
    def __init__(self, settings: Polish, problem: Problem, pruned: Tensor):
        self.settings, self.problem, self.pruned = settings, problem, pruned
        self.deadline = time.perf_counter() + settings.seconds
        self.rounds, self.gained, self.proven = 0, 0.0, False
        self.best, self.cost = pruned.clone(), problem.quadratic.cost(pruned)
        seed = int(torch.randint(2**31, (1,), generator=problem.generator))
        self.draws = np.random.default_rng(seed)

    @property
    def over(self) -> bool:
        limit = self.settings.rounds
        return time.perf_counter() >= self.deadline or (limit is not None and self.rounds >= limit)

    def run(self) -> None:
        """Descend, shake and descend again; `best` has the best mask at any time."""
        while True:
            try:
                self._descend()
                while not self.over and self._polish_groups():
                    pass
            finally:  # what an interrupted descent has reached counts too
                cost = self.problem.quadratic.cost(self.pruned)
                if cost < self.cost:
                    self.best, self.cost = self.pruned.clone(), cost
            if self.over or self.proven:
                return
            self.pruned = self._shaken()

    def _polish_groups(self) -> bool:
        """Polish each group of the budget once; say whether anything was gained."""
        gained, self.proven = False, True
        for group in self.problem.budget.groups:
            inside, outside = group[self.pruned[group]], group[~self.pruned[group]]
            if inside.numel() and outside.numel() and not self.over:
                gained |= self._polish_pool(inside, outside)
        return gained

    def _shaken(self) -> Tensor:
        """Return the best mask with a few weights of each group's pool exchanged at random."""
        quadratic, pruned = self.problem.quadratic, self.best.clone()
        impact = quadratic.impact(quadratic.drift(quadratic.pressure(pruned)), pruned)
        for group in self.problem.budget.groups:
            inside, outside = group[pruned[group]], group[~pruned[group]]
            members, count = extremes(impact, inside, outside, self.settings.pool)
            most = min(count, members.numel() - count, self.settings.neighbourhood)
            moved = int(self.draws.integers(1, most + 1)) if most else 0
            back = self.draws.permutation(count)[:moved]
            gone = count + self.draws.permutation(members.numel() - count)[:moved]
            pruned[members[torch.from_numpy(back)]] = False
            pruned[members[torch.from_numpy(gone)]] = True
        return pruned

    def _descend(self) -> None:
        """Take single swaps as long as they help: cheaper than solving, and most of the way."""
        quadratic = self.problem.quadratic
        least = FINE * abs(quadratic.cost(self.pruned)) + 1e-300
        swapping = WideSearch(min_improvement=least, swaps_per_step=256)
        while not self.over:
            swaps = swapping.step(self.problem, self.pruned, quadratic.pressure(self.pruned))
            if not swaps:
                return
            back, gone = torch.tensor(swaps, device=self.pruned.device).T
            self.pruned[back], self.pruned[gone] = False, True

    def _polish_pool(self, inside: Tensor, outside: Tensor) -> bool:
        """Solve neighbourhoods of a freshly gathered pool until they bring nothing more; say if any did."""
        quadratic = self.problem.quadratic
        drift = quadratic.drift(quadratic.pressure(self.pruned))
        members, count = extremes(quadratic.impact(drift, self.pruned), inside, outside, self.settings.pool)
        pool = Pool.gather(quadratic, drift, members)
        state = np.arange(members.numel()) < count
        failures, gained = 0, False
        small = members.numel() <= self.settings.neighbourhood
        # One neighbourhood that is the whole group needs no second try; where it is the whole problem, that is a proof.
        self.proven &= small and members.numel() == self.pruned.numel()
        while failures < (1 if small else self.settings.patience) and not self.over:
            if self._solve(pool, state):
                failures, gained = 0, True
            else:
                failures += 1
        self.pruned[members] = torch.from_numpy(state).to(self.pruned.device)
        return gained

    def _solve(self, pool: Pool, state: np.ndarray) -> bool:
        """Solve one neighbourhood, and change the pool and its state where that helps."""
        chosen = _neighbourhood(pool, state, self.settings.neighbourhood, self.draws)
        matrix, before = pool.gamma[np.ix_(chosen, chosen)], state[chosen]
        linear = pool.drift[chosen] - matrix @ before
        outcome = minimise(matrix, linear, before, self.deadline, MAX_NODES)
        value = float(linear @ before + before @ matrix @ before / 2)
        self.rounds += 1
        self.proven &= outcome.status == "optimal"
        better = outcome.objective < value - FINE * abs(value) - 1e-300
        if better:
            moved = outcome.pruned.astype(float) - before
            pool.drift += pool.gamma[:, chosen] @ moved
            state[chosen] = outcome.pruned
            self.gained += (value - outcome.objective) / 2
        values = {"gained": self.gained, "proven": float(outcome.status == "optimal")}
        self.problem.notify(Event("polish", self.rounds, self.settings.rounds, values))
        return better


def _neighbourhood(pool: Pool, state: np.ndarray, size: int, draws: np.random.Generator) -> np.ndarray:
    """Choose the weights to free: around one at random, the cheapest to exchange and the most entangled with it."""
    impact = np.where(state, -pool.alpha(slice(None)), pool.beta(slice(None)))
    centre = int(draws.integers(state.size))
    # Prices of an exchange and interactions are weighed at a random rate and blurred, so that no two rounds agree.
    key = draws.uniform(0, 1) * impact - draws.uniform(0, 2) * np.abs(pool.gamma[centre])
    key += np.abs(key).mean() * draws.uniform(0, 1) * draws.standard_normal(state.size)
    key[centre] = -np.inf
    ranked = np.argsort(key)
    half = size // 2
    inside, outside = ranked[state[ranked]], ranked[~state[ranked]]
    return np.concatenate([inside[: max(half, size - outside.size)], outside[: max(half, size - inside.size)]])[:size]
