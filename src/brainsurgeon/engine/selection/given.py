"""A mask from elsewhere: bring your own P, and have the rest done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem
from brainsurgeon.errors import BrainsurgeonError


@dataclass(frozen=True)
class Given:
    """Prune what these masks say: boolean tensors by parameter name, such as `result.masks`, in any order.

    A layer without a mask keeps all its weights.
    """

    masks: Mapping[str, Tensor] = field(repr=False)

    uses_curvature: ClassVar[bool] = False
    uses_loss: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.masks, Mapping) or not self.masks:
            raise BrainsurgeonError(
                f"Given takes {{parameter name: boolean tensor, True where removed}}, got {type(self.masks).__name__}"
            )
        for name, mask in self.masks.items():
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
                raise BrainsurgeonError(f"the mask of {name!r} must be a boolean tensor, got {got}")

    def __call__(self, problem: Problem) -> Tensor:
        """Return the mask; its counts must be those of the budget."""
        names = [name for name, _ in problem.layers]
        if unknown := [name for name in self.masks if name not in names]:
            raise BrainsurgeonError(
                f"there is no layer {unknown[0]!r} to prune by a given mask; the layers are: {', '.join(names)}"
            )
        return torch.cat([self._of(name, shape, problem.weights.device) for name, shape in problem.layers])

    def _of(self, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
        if name not in self.masks:
            return torch.zeros(shape, dtype=torch.bool, device=device).reshape(-1)
        mask = self.masks[name]
        if tuple(mask.shape) != tuple(shape):
            raise BrainsurgeonError(f"the mask of {name!r} must be of shape {tuple(shape)}, got {tuple(mask.shape)}")
        return mask.reshape(-1).to(device)
