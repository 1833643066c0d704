"""Branch and bound over which weights go, many nodes at a time.

The frontier is a heap by lower bound. A batch of the most promising nodes is relaxed at once; the tangents give the
lower bounds, the weights that can be decided at once (their reduced costs exceed the gap), and a 0-1 point each, whose
true cost may be a new incumbent. What is left is branched on a weight that is far from decided and matters much.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from itertools import count as counter

import numpy as np

from brainsurgeon.exact.instance import Array
from brainsurgeon.exact.tangent import FREE, Relaxation, bounds

BATCH = 256
EDGE = 1e-9
TOLERANCE = 1e-9
"""A node is dropped when it cannot be better than the incumbent by more than this, relative to its cost."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The best set found, its cost, and a lower bound on the cost of any."""

    pruned: Array
    objective: float
    lower: float
    status: str
    nodes: int | None = None
    delta: Array | None = None


def branch_and_bound(relaxation: Relaxation, start: Array, deadline: float, max_nodes: int | None = None) -> Outcome:
    """Search from an incumbent until it is proven the best, the deadline (`time.perf_counter`) or Ctrl-C."""
    search = _Search(relaxation, start.astype(bool))
    try:
        status = search.run(deadline, max_nodes)
    except KeyboardInterrupt:
        status = "interrupted"
    return Outcome(search.best, search.cost, min(search.lower, search.cost), status, search.nodes)


class _Search:
    def __init__(self, relaxation: Relaxation, start: Array):
        self.relaxation, self.best = relaxation, start
        self.cost = float(relaxation.tangent(start[None].astype(float))[0][0])
        self.nodes, self.lower = 0, -np.inf
        self._ticket = counter()
        root = np.full(relaxation.size, FREE, np.int8)
        self.heap = [(-np.inf, next(self._ticket), root, relaxation.cold())]

    def run(self, deadline: float, max_nodes: int | None) -> str:
        while self.heap:
            self.lower = self.heap[0][0]
            if self.lower >= self.target:
                break
            if self.nodes and time.perf_counter() > deadline:  # the root at least is bounded
                return "time limit"
            if max_nodes is not None and self.nodes >= max_nodes:
                return "node limit"
            taken = [heapq.heappop(self.heap) for _ in range(min(BATCH, len(self.heap)))]
            try:
                floors, _, states, warms = zip(*taken, strict=True)
                self._expand(np.array(floors), np.stack(states), np.stack(warms))
            except KeyboardInterrupt:
                self.heap += taken  # their bounds still hold
                raise
        self.lower = self.cost
        return "optimal"

    @property
    def target(self) -> float:
        """Bounds above this are as good as the incumbent's cost."""
        return self.cost - TOLERANCE * max(abs(self.cost), 1e-12)

    def _expand(self, floor: Array, state: Array, warm: Array) -> None:
        self.nodes += len(state)
        y, warm = self.relaxation.relax(state, warm.astype(float))
        found = bounds(self.relaxation, state, y)
        self._offer(found.point)
        alive = found.lower < self.target
        state, y, point, warm = state[alive], y[alive], found.point[alive], warm[alive].astype(np.float32)
        lower, flip, floor = found.lower[alive], found.flip[alive], floor[alive]
        decided = (state == FREE) & (lower[:, None] + flip >= self.target)
        state = np.where(decided, point.astype(np.int8), state)
        free = state == FREE
        # A node without a choice left is its own 0-1 point, and that was offered.
        left = free.any(1)
        inside = np.clip(y, 0, 1)
        doubt = (np.minimum(inside, 1 - inside) + EDGE) * self.relaxation.weight
        pivot = np.where(free, doubt, -1.0).argmax(1)
        for row in np.flatnonzero(left):
            for value in (0, 1):
                child = state[row].copy()
                child[pivot[row]] = value
                rise = flip[row, pivot[row]] if value != point[row, pivot[row]] else 0.0
                bound = max(lower[row] + rise, floor[row])
                if bound < self.target:
                    heapq.heappush(self.heap, (bound, next(self._ticket), child, warm[row]))

    def _offer(self, points: Array) -> None:
        costs = self.relaxation.tangent(points)[0]
        k = int(costs.argmin())
        if costs[k] < self.cost:
            self.cost, self.best = float(costs[k]), points[k].astype(bool)
