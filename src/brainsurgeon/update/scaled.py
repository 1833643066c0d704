"""An update taken in part: at high sparsity the whole step leaves the region where the quadratic model holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import BrainsurgeonError
from ..events import Event
from ..problem import Problem, Update

SCALES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)


@dataclass(frozen=True)
class Scaled:
    """Scale the change of the kept weights by a number, or by the one of SCALES with the smallest sample loss."""

    update: Update
    scale: float | str = "auto"

    uses_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.scale != "auto" and not (isinstance(self.scale, int | float) and 0 <= self.scale <= 10):
            raise BrainsurgeonError(f'update_scale must be "auto" or a number (1 is the whole update), got {self.scale!r}')

    @property
    def uses_curvature(self) -> bool:
        """As the update that is scaled."""
        return getattr(self.update, "uses_curvature", True)

    def __call__(self, problem: Problem, pruned: Tensor) -> Tensor:
        """Return the scaled δw."""
        delta = self.update(problem, pruned)
        scales = SCALES if self.scale == "auto" else (float(self.scale),)
        steps = [torch.where(pruned, delta, scale * delta) for scale in scales]
        best = 0
        if len(steps) > 1:
            best = problem.judge.best_weights([problem.weights + step.to(problem.weights.dtype) for step in steps])
        problem.notify(Event("scale", 1, 1, {"scale": scales[best]}))
        return steps[best]
