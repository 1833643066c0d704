"""One table of model × loss × data. A new kind of module is one row; every parametrised test takes it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

SAMPLES = 40


class PackedAttention(nn.Module):
    """MultiheadAttention, whose in_proj_weight packs three projections."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        mixed, _ = self.attention(x, x, x, need_weights=False)
        return self.head(mixed.mean(1))


class TransposedLinear(nn.Module):
    """A linear map with weight (in, out), as some language models have it."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class Recurrent(nn.Module):
    """A recurrent layer, read at its last position."""

    def __init__(self, kind: Callable[..., nn.RNNBase]):
        super().__init__()
        self.cell = kind(3, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Tied(nn.Module):
    """An embedding whose tensor is also the output layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.mix = nn.Linear(4, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(torch.tanh(self.mix(self.embedding(tokens).mean(1))))


class TwoInputs(nn.Module):
    """Takes two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.head(torch.relu(self.left(a) + self.right(b)))


class Branching(nn.Module):
    """Chooses a way for each sample by its data, which torch.func cannot batch."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.one(row) if row.sum() > 0 else self.other(row) for row in x])


def dict_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """A loss of (model, batch) for batches that are dicts."""
    return nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])


def mlp(dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(dtype)


def convolutional(*layers: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(features, 3))


def labelled(*shape: int, dtype: torch.dtype = torch.float32, samples: int = SAMPLES) -> tuple[Tensor, Tensor]:
    return torch.randn(samples, *shape).to(dtype), torch.randint(3, (samples,))


def tokens(*shape: int) -> tuple[Tensor, Tensor]:
    return torch.randint(7, (SAMPLES, *shape)), torch.randint(3, (SAMPLES,))


@dataclass(frozen=True)
class Case:
    """A kind of model, data that fits it, and its loss; built anew, and the same, at every call."""

    name: str
    build: Callable[[], nn.Module]
    make_data: Callable[[], Any]
    loss: Any = "cross_entropy"
    prunable: tuple[str, ...] = ()
    batched: bool = True
    tolerance: float = 1e-4

    def model(self) -> nn.Module:
        return seeded(self.build, 0)

    def data(self) -> Any:
        return seeded(self.make_data, 1)


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """Call with the global generator at a seed, and leave it as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


TABLE = [
    Case("linear", mlp, lambda: labelled(6), prunable=("0.weight", "2.weight")),
    Case(
        "regression",
        lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)),
        lambda: (torch.randn(SAMPLES, 5), torch.randn(SAMPLES, 2)),
        "mse",
        ("0.weight", "2.weight"),
    ),
    Case(
        "conv1d",
        lambda: convolutional(nn.Conv1d(2, 3, 3), features=12),
        lambda: labelled(2, 6),
        prunable=("0.weight", "3.weight"),
    ),
    Case(
        "conv2d",
        lambda: convolutional(nn.Conv2d(2, 3, 3, bias=False), features=12),
        lambda: labelled(2, 4, 4),
        prunable=("0.weight", "3.weight"),
    ),
    Case(
        "conv3d",
        lambda: convolutional(nn.Conv3d(1, 2, 2), features=16),
        lambda: labelled(1, 3, 3, 3),
        prunable=("0.weight", "3.weight"),
    ),
    Case(
        "transposed_conv",
        lambda: convolutional(nn.ConvTranspose2d(2, 3, 2), features=27),
        lambda: labelled(2, 2, 2),
        prunable=("0.weight", "3.weight"),
    ),
    Case(
        "grouped_conv",
        lambda: convolutional(nn.Conv2d(4, 4, 2, groups=2), features=16),
        lambda: labelled(4, 3, 3),
        prunable=("0.weight", "3.weight"),
    ),
    Case(
        "depthwise_conv",
        lambda: convolutional(nn.Conv2d(4, 4, 2, groups=4), features=16),
        lambda: labelled(4, 3, 3),
        prunable=("0.weight", "3.weight"),
    ),
    Case(
        "embedding",
        lambda: nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 3)),
        lambda: tokens(3),
        prunable=("0.weight", "2.weight"),
    ),
    Case(
        "attention",
        PackedAttention,
        lambda: labelled(4, 6),
        prunable=("attention.in_proj_weight", "attention.out_proj.weight", "head.weight"),
    ),
    Case(
        "transposed_linear",
        lambda: nn.Sequential(TransposedLinear(5, 7), nn.Tanh(), TransposedLinear(7, 3)),
        lambda: labelled(5),
        prunable=("0.weight", "2.weight"),
    ),
    Case(
        "lstm",
        lambda: Recurrent(nn.LSTM),
        lambda: labelled(4, 3),
        prunable=("cell.weight_ih_l0", "cell.weight_hh_l0", "head.weight"),
    ),
    Case(
        "gru",
        lambda: Recurrent(nn.GRU),
        lambda: labelled(4, 3),
        prunable=("cell.weight_ih_l0", "cell.weight_hh_l0", "head.weight"),
        batched=False,
    ),
    Case("tied", Tied, lambda: tokens(3), prunable=("embedding.weight", "mix.weight")),
    Case(
        "batch_norm_dropout",
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 3)
        ),
        lambda: labelled(1, 3, 3),
        prunable=("0.weight", "5.weight"),
    ),
    Case(
        "several_inputs",
        TwoInputs,
        lambda: ((torch.randn(SAMPLES, 3), torch.randn(SAMPLES, 2)), torch.randint(3, (SAMPLES,))),
        prunable=("left.weight", "right.weight", "head.weight"),
    ),
    Case(
        "dict_batch",
        lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1)),
        lambda: {"x": torch.randn(SAMPLES, 5), "y": torch.randn(SAMPLES)},
        dict_loss,
        ("0.weight", "2.weight"),
    ),
    Case("branching", Branching, lambda: labelled(4), prunable=("one.weight", "other.weight"), batched=False),
    Case(
        "float64",
        lambda: mlp(torch.float64),
        lambda: labelled(6, dtype=torch.float64),
        prunable=("0.weight", "2.weight"),
    ),
    Case(
        "bfloat16",
        lambda: mlp(torch.bfloat16),
        lambda: labelled(6, dtype=torch.bfloat16),
        prunable=("0.weight", "2.weight"),
        tolerance=0.05,
    ),
]
CASES = {case.name: case for case in TABLE}

every_case = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
every_device = pytest.mark.parametrize("device", DEVICES)
