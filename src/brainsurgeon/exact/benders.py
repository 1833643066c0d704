"""The decomposition that the paper sketches: a master chooses P, CBS-U prices it, and its price becomes a cut.

The master knows the cost only through tangents of the relaxation of `joint_relaxation`, which at a 0-1 point are exact:
t ≥ c(ŷ) + ∇c(ŷ)ᵀ(y − ŷ), with c(ŷ) the value of CBS-U for ŷ. It starts with the tangents at the minimisers of the
relaxation, and is a small MILP. Its optimum is a lower bound on CBS; every ŷ is a pruning. They meet at the optimum.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from brainsurgeon.exact.branch import Outcome
from brainsurgeon.exact.highs import Answer, Rows, run
from brainsurgeon.exact.incumbent import rounded, swap_descent
from brainsurgeon.exact.instance import Array, Instance
from brainsurgeon.exact.joint_relaxation import ROOT_ITERATIONS, JointRelaxation, tight_joint
from brainsurgeon.exact.tangent import root_bound

ROOT_CUTS = 60
PRECISION = 1e-7
"""The master's MILP cannot tell costs apart that differ by less than this."""


def benders(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS by alternating between a master and CBS-U until they agree."""
    height = max(instance.joint_cost(start) - instance.floor, 1e-300)
    relaxation = tight_joint(instance, count, height, deadline)
    best = rounded(relaxation, start)
    master = _Master(relaxation, height, instance.floor)
    objective, lower, status, rounds = master.cut(best.astype(float)), -np.inf, "optimal", 0
    try:
        master.tighten(deadline)
        while lower < objective - PRECISION * height:
            answer = master.solve(deadline)
            lower, status, rounds = max(lower, master.cost(answer.bound)), answer.status, rounds + 1
            if answer.values is None or status != "optimal":
                break
            y = np.round(answer.values[: relaxation.size])
            master.cut(y)
            near, cost = swap_descent(relaxation, y > 0.5)
            if cost < objective:
                objective, best = master.cut(near.astype(float)), near
    except KeyboardInterrupt:
        status = "interrupted"
    return Outcome(best, objective, lower, status, rounds)


class _Master:
    """min t over 0-1 points y with Σy = n, above all tangents so far; t is in units of `height` above `floor`."""

    def __init__(self, relaxation: JointRelaxation, height: float, floor: float):
        self.relaxation, self.height, self.floor = relaxation, height, floor
        size = relaxation.size
        self.rows = [(list(range(size)), [1.0] * size, float(relaxation.count), float(relaxation.count))]

    def cost(self, t: float) -> float:
        """Return a value of t as a cost."""
        return self.floor + self.height * t

    def cut(self, y: Array) -> float:
        """Add the tangent at y, and return the cost there."""
        values, gradients = self.relaxation.tangent(y[None])
        size, slope = y.size, gradients[0] / self.height
        level = (float(values[0]) - self.floor) / self.height - float(slope @ y)
        self.rows.append(([*range(size), size], [*(-slope).tolist(), 1.0], level, np.inf))
        return float(values[0])

    def tighten(self, deadline: float) -> None:
        """Add tangents along the way to the minimiser of the relaxation, as found by the master made continuous."""
        _, y, _ = root_bound(replace(self.relaxation, iterations=ROOT_ITERATIONS))
        self.cut(y)
        for _ in range(ROOT_CUTS):
            answer = self.solve(deadline, whole=False)
            if answer.values is None or time.perf_counter() > deadline:
                return
            y = (y + answer.values[: y.size]) / 2  # halfway: the master's own point is far off at first
            if self.cost(answer.bound) >= self.cut(y) - PRECISION * self.height:
                return

    def solve(self, deadline: float, whole: bool = True) -> Answer:
        """Return the best y above all tangents."""
        size = self.relaxation.size
        cost = np.append(np.zeros(size), 1.0)
        low, high = np.append(np.zeros(size), -np.inf), np.append(np.ones(size), np.inf)
        kinds = np.append(np.full(size, whole), False)
        return run(cost, low, high, Rows.of(self.rows), kinds, deadline)
