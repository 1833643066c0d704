"""No update: the kept weights stay as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem


@dataclass(frozen=True)
class Keep:
    """Leave the kept weights alone."""

    uses_curvature: ClassVar[bool] = False
    uses_loss: ClassVar[bool] = False

    def __call__(self, problem: Problem, pruned: Tensor) -> Tensor:
        """Return −w on P, 0 elsewhere."""
        return torch.where(pruned, -problem.weights.double(), 0.0)
