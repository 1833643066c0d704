"""A program for each rank of a test: it prunes in several ways and leaves its masks and losses in a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon import distributed
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.layerwise.solvers import Admm, SparseGPT

WAYS: dict[str, tuple[Any, float, str]] = {
    "layers": ("layerwise", 0.5, "uniform"),
    "global": ("layerwise", 0.6, "global"),
    "rows": (Layerwise(pattern="row"), 0.5, "uniform"),
    "uneven rows": (Layerwise(SparseGPT(), pattern="row"), 0.53, "uniform"),
    "2:4": (Layerwise(Admm(), pattern="2:4"), 0.5, "uniform"),
    "wanda": ("wanda", 0.53, "uniform"),
    "blocks": (Layerwise(pattern="2x2 row"), 0.5, "uniform"),
}


class Block(nn.Module):
    """Two layers with the same input, one behind them, and a skip."""

    def __init__(self, width: int):
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.back = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.back(torch.relu(self.left(x)) * torch.sigmoid(self.right(x)))


def network() -> nn.Module:
    """A chain of blocks behind a grouped convolution."""
    torch.manual_seed(0)
    convolution = nn.Conv1d(24, 48, 2, groups=2)
    blocks = [Block(48) for _ in range(2)]
    return nn.Sequential(convolution, nn.Flatten(), *blocks, nn.Linear(48, 6))


def samples(count: int = 1000) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 24, 2, generator=generator) * (0.5 + torch.rand(1, 24, 1, generator=generator))
    return inputs, torch.randint(6, (count,), generator=generator)


def pruned_in(way: str) -> brainsurgeon.PruningResult:
    method, sparsity, budget = WAYS[way]
    return brainsurgeon.prune(network(), samples(), sparsity, method, budget=budget)


def saved_form(result: brainsurgeon.PruningResult) -> dict[str, Tensor]:
    """Masks, weights and losses, as tensors."""
    found = {f"mask/{name}": mask for name, mask in result.masks.items()}
    found |= {f"weight/{name}": value.detach().clone() for name, value in result.model.named_parameters()}
    return found | {"losses": torch.tensor([result.loss_before, result.loss_after], dtype=torch.float64)}


def prune_all(folder: Path) -> None:
    """Every way, with what was told on this rank."""
    for way in WAYS:
        told: list[Any] = []
        method, sparsity, budget = WAYS[way]
        result = brainsurgeon.prune(network(), samples(), sparsity, method, budget=budget, callback=told.append)
        noted = torch.tensor([len(told), len(result.notes)])
        save_file(saved_form(result) | {"told": noted}, folder / f"{way}.{distributed.rank()}".replace(":", "-"))


def disagree(folder: Path) -> None:
    """Ranks that were given other samples, then another model; too few samples. What each refuses is written down."""
    own = distributed.rank()
    inputs, targets = samples()
    model = network()
    with torch.no_grad():
        model[0].bias[0] += own
    given = [(network(), (inputs + own, targets)), (model, (inputs, targets)), (network(), samples(1))]
    for number, (each, data) in enumerate(given):
        try:
            brainsurgeon.prune(each, data, 0.5, "wanda")
        except brainsurgeon.BrainsurgeonError as error:
            (folder / f"refused-{number}.{own}").write_text(str(error))


def die(folder: Path, method: Any = "layerwise", call: int = 20) -> None:
    """The second rank is gone at some call of the last block, in the midst of the work; the first says so."""
    model, calls = network(), 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if distributed.rank() == 1 and calls == call:
            os._exit(3)

    model[3].back.register_forward_hook(count)
    try:
        brainsurgeon.prune(model, samples(), 0.5, method)
    except brainsurgeon.BrainsurgeonError as error:
        (folder / "died").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.start(timeout=60.0)
    for task in (prune_all, disagree, die):
        task(Path(sys.argv[1]))
    os._exit(0)  # gloo may abort when it takes down a group that has lost a rank
