"""An update taken in part: at high sparsity the whole step leaves the region where the quadratic model holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem, Update
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event

SCALES = (1.0, 0.75, 0.5, 0.3, 0.1, 0.0)


@dataclass(frozen=True)
class Scaled:
    """Scale the change of the kept weights by a number, or by the part of it that the sample loss likes best."""

    update: Update
    scale: float | str = "auto"

    uses_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.scale != "auto" and not (isinstance(self.scale, int | float) and 0 <= self.scale <= 10):
            raise BrainsurgeonError(
                f'update_scale must be "auto" or a number from 0 to 10 (1 is the whole update), got {self.scale!r}'
            )

    @property
    def uses_curvature(self) -> bool:
        """As the update that is scaled."""
        return getattr(self.update, "uses_curvature", True)

    def __call__(self, problem: Problem, pruned: Tensor) -> Tensor:
        """Return the scaled δw."""
        delta = self.update(problem, pruned)
        scale = float(self.scale) if self.scale != "auto" else self._search(problem, pruned, delta)
        problem.notify(Event("scale", 1, 1, {"scale": scale}))
        return torch.where(pruned, delta, scale * delta)

    def _search(self, problem: Problem, pruned: Tensor, delta: Tensor) -> float:
        return SCALES[problem.judge.best_weights([problem.changed(pruned, scale * delta) for scale in SCALES])]
