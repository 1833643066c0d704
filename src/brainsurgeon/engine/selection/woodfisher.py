"""WF-S: the pruning statistic of WoodFisher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from brainsurgeon.engine.problem import Problem


@dataclass(frozen=True)
class WoodFisher:
    """Prune the weights whose removal alone, with its own best update, costs least: w_i²/(2[H⁻¹]_ii)."""

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = False

    def __call__(self, problem: Problem) -> Tensor:
        """Return the mask."""
        quadratic = problem.quadratic
        return problem.budget.lowest(quadratic.w.square() / (2 * quadratic.inverse_diagonal))
