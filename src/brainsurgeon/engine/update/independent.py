"""WF: every pruned weight's own best update, added up as if it were alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem


@dataclass(frozen=True)
class Independent:
    """δw = −Σ_{q∈P} (w_q/[H⁻¹]_qq) H⁻¹e_q: one solve, as WoodFisher does."""

    uses_curvature: ClassVar[bool] = True
    uses_loss: ClassVar[bool] = False

    def __call__(self, problem: Problem, pruned: Tensor) -> Tensor:
        """Return δw."""
        quadratic = problem.quadratic
        push = torch.where(pruned, quadratic.w / quadratic.inverse_diagonal, 0.0)
        return torch.where(pruned, -quadratic.w, -quadratic.solve(push))
