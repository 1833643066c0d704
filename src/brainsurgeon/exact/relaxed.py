"""The relaxed start: let fractions of weights be pruned, solve that, and prune the largest fractions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from brainsurgeon.engine.problem import Problem
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.exact.continuous import Continuous


@dataclass(frozen=True)
class Relaxed:
    """Round the solution of the continuous relaxation of CBS-S.

    With K gradients at most about K weights of a block are fractional there; all others are decided with every
    interaction taken into account, which no search that swaps one weight at a time can do. `seconds` bounds the time;
    the relaxation needs one K×K factor and some hundred reads of the gradients.
    """

    seconds: float = 60.0

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise BrainsurgeonError(f"seconds must be 0 or more, got {self.seconds!r}")

    def __call__(self, problem: Problem) -> Tensor:
        """Return the mask."""
        with problem.clock.measure("relaxation"):
            first = problem.budget.lowest(problem.weights.abs())
            relaxation = Continuous(problem.quadratic, problem.budget)
            relaxation.point = first.double()
            try:
                relaxation.minimise(first, problem.quadratic.cost(first), time.perf_counter() + self.seconds)
                problem.notify(Event("relaxation", relaxation.steps, None, {"lower": relaxation.lower}))
            except KeyboardInterrupt:
                problem.notify(Event("relaxation interrupted: its point so far is rounded", relaxation.steps))
            return problem.budget.lowest(-relaxation.point)
