"""A mask from elsewhere: bring your own P, and have the rest done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem


@dataclass(frozen=True)
class Given:
    """Prune what these masks say, one boolean tensor a parameter in the model's order (such as `result.masks`)."""

    masks: Mapping[str, Tensor] = field(repr=False)

    uses_curvature: ClassVar[bool] = False
    uses_loss: ClassVar[bool] = False

    def __call__(self, problem: Problem) -> Tensor:
        """Return the mask; its counts must be those of the budget."""
        return torch.cat([mask.reshape(-1) for mask in self.masks.values()]).to(problem.weights.device)
