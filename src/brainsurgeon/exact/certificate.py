"""Certificates: a lower bound on the CBS-S cost of every mask with the same counts, for networks of any size.

Three bounds, and the best of them counts. *Spectral*: with λ the smallest eigenvalue of H, ½λΣw_i²y_i alone, the rest
being positive. *Lagrangian*: the tangents of `continuous`, whose limit is its relaxation. *Branch and bound*,
for at most a few hundred weights: the best diagonal split in the place of λ, and branching.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.exact.certified import relative_gap
from brainsurgeon.exact.continuous import Continuous
from brainsurgeon.exact.instance import Instance
from brainsurgeon.exact.quadratic_program import minimise

SMALL = 300
"""Weights of the largest problem that is given to the branch and bound."""
WIDE = 0.5
"""A gap from which on the certificate says that it cannot tell a bad mask from a weak bound."""


@dataclass(frozen=True)
class Certificate:
    """The CBS-S cost of a mask, and a lower bound on that of any mask with the same counts.

    `bounds` has each bound by its name. `status` is "optimal" (the mask is proven best), "optimum known" (it is not,
    and the bound is attained), "relaxation solved" (more time
    would not raise the bound), "time limit" or "interrupted".
    """

    objective: float
    lower_bound: float
    bounds: dict[str, float]
    status: str
    seconds: float
    steps: int

    @property
    def gap(self) -> float:
        """How much the cost could fall at most, as a share of it."""
        return relative_gap(self.objective, self.lower_bound)

    def summary(self) -> str:
        """Return the certificate in words."""
        parts = ", ".join(f"{name} {value:.6g}" for name, value in self.bounds.items())
        text = (
            f"CBS-S cost {self.objective:.6g}; no mask with the same counts costs less than {self.lower_bound:.6g}: "
            f"at most {self.gap:.2%} could be saved ({self.status}, {self.seconds:.1f} s; {parts})"
        )
        if self.status != "optimal" and self.gap > WIDE:
            text += "; so wide a gap does not tell a bad mask from a weak bound: certify a better mask to see which"
        return text


def certify(quadratic: QuadraticModel, budget: Budget, pruned: Tensor, time_limit: float = 60.0) -> Certificate:
    """Bound the cost of every mask that meets the budget from below, and compare this one's with it."""
    began = time.perf_counter()
    if not time_limit >= 0:
        raise BrainsurgeonError(f"time_limit must be a number of seconds, 0 or more, got {time_limit!r}")
    budget.check(pruned)
    objective = quadratic.cost(pruned)
    relaxation = Continuous(quadratic, budget)
    bounds, status = {"spectral": relaxation.least(relaxation.slope)}, "time limit"
    try:
        if quadratic.size <= SMALL and len(budget.groups) == 1:
            status, bounds["branch and bound"] = _branch(quadratic, pruned, began + time_limit)
        else:
            status = relaxation.minimise(pruned, objective, began + time_limit)
    except KeyboardInterrupt:
        status = "interrupted"
    if relaxation.lower > -float("inf"):
        bounds["Lagrangian"] = relaxation.lower
    lower = min(max(bounds.values()), objective)
    if status == "optimal" and relative_gap(objective, lower) > 1e-6:
        status = "optimum known"
    return Certificate(objective, lower, bounds, status, time.perf_counter() - began, relaxation.steps)


def _branch(quadratic: QuadraticModel, pruned: Tensor, deadline: float) -> tuple[str, float]:
    instance = Instance.from_quadratic(quadratic)
    count = int(pruned.sum())
    if count in (0, instance.size):
        return "optimal", quadratic.cost(pruned)
    outcome = minimise(instance.quadratic_form, instance.linear_form, pruned.cpu().numpy(), deadline)
    return outcome.status, outcome.lower
