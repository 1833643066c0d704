"""MP: the smallest weights go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from brainsurgeon.engine.problem import Problem


@dataclass(frozen=True)
class Magnitude:
    """Prune the weights of smallest absolute value."""

    uses_curvature: ClassVar[bool] = False
    uses_loss: ClassVar[bool] = False

    def __call__(self, problem: Problem) -> Tensor:
        """Return the mask."""
        return problem.budget.lowest(problem.weights.abs())
