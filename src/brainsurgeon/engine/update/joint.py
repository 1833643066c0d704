"""CBS-U: the update that is best for all pruned weights together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from brainsurgeon.engine.problem import Problem


@dataclass(frozen=True)
class Joint:
    """Minimise Q(δw) subject to δw_P = −w_P (section 6 of the paper)."""

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = False

    def __call__(self, problem: Problem, pruned: Tensor) -> Tensor:
        """Return δw."""
        return problem.quadratic.compensate(pruned)
