"""A small classifier and samples for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def samples(count: int = 100) -> tuple[Tensor, Tensor]:
    """Random inputs of three classes."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 6, generator=generator), torch.randint(3, (count,), generator=generator)


def network() -> nn.Sequential:
    """Two layers, 6 inputs, 3 classes; the same at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def pair() -> tuple[Tensor, Tensor]:
    """Four equal inputs of three classes."""
    return torch.ones(4, 6), torch.tensor([0, 1, 2, 0])
