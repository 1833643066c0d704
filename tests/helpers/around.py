"""Two layers around an operation, and the groups that are found there."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.structured.prepare import Prepared, prepare


class Around(nn.Module):
    """Two layers around an operation; what else it needs is given by name."""

    def __init__(self, first: nn.Module, between: Callable[..., Tensor], last: nn.Module, **others: nn.Module) -> None:
        super().__init__()
        self.first, self.last, self.others, self.between = first, last, nn.ModuleDict(others), between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x), **self.others))


def found(model: nn.Module, data: tuple[Tensor, Tensor]) -> Prepared:
    """A network with random weights, made ready to shrink."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for tensor in model.parameters():
            nn.init.normal_(tensor)
    return prepare(Surgery(model.double().eval(), data, "mse", progress=False), 20, 1)


def wide(channels: int = 8) -> nn.Module:
    """A convolution that makes units."""
    return nn.Conv2d(3, channels, 3, padding=1)


def targets(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs with targets of the outputs' shape."""
    return inputs, torch.zeros_like(outputs)
