"""A small network that gradual pruning trains in a moment."""

from __future__ import annotations

from typing import Any

import torch
from cases import seeded
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon import PruningResult, prune

FAST: dict[str, Any] = {"max_gradients": 600, "learning_rate": 0.01, "batch_size": 16, "progress": False}


def network() -> nn.Module:
    """With normalisation and dropout."""
    return nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Dropout(0.3), nn.Linear(10, 3))


def data(samples: int = 100) -> tuple[Tensor, Tensor]:
    """Samples of a rule that can be learnt."""
    x = seeded(lambda: torch.randn(samples, 6), 1)
    return x, (x[:, 0] > 0).long() + (x[:, 1] + x[:, 2] > 0).long()


def model() -> nn.Module:
    """The same at every call."""
    return seeded(network, 0)


def run(samples: int = 100, **settings: Any) -> PruningResult:
    """Prune it to 0.6."""
    return prune(model(), data(samples), 0.6, "gradual", **{**FAST, **settings})


def same(one: PruningResult, other: PruningResult) -> bool:
    """Bit by bit."""
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    masks = zip(one.masks.values(), other.masks.values(), strict=True)
    return all(torch.equal(a, b) for a, b in [*pairs, *masks])


class Counting:
    """A cross entropy that counts the samples whose gradients are taken."""

    def __init__(self) -> None:
        self.samples = 0

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if output.requires_grad:
            output.register_hook(lambda _: self.count(len(target)))
        return F.cross_entropy(output, target)

    def count(self, samples: int) -> None:
        self.samples += samples


def wide() -> tuple[Tensor, Tensor]:
    """The same samples with one input fewer."""
    x, y = data()
    return x[:, :5], y
