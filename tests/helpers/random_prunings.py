"""Many prunings of random small networks in one process, each recounted independently of the package."""

from __future__ import annotations

import copy
import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import brainsurgeon

NETWORKS: dict[str, Callable[[random.Random], tuple[nn.Module, Callable[[int], Tensor]]]] = {}
LOSSES = {"cross_entropy": 3, "mse": 3, "bce_with_logits": 3}
SPARSITIES = (0.1, 0.25, 0.5, 0.6180339887, 0.7, 0.9, 0.95, 0.999)
ONE_SHOT = ("mp", "rmp", "wf-s", "wf", "cbs-s", "cbs", "algorithm1", "mp+cbs-u", "wf-s+cbs-u")
WITHOUT_UPDATE = ("mp", "rmp", "wf-s", "cbs-s", "algorithm1")
OTHERS = ("staged", "layerwise", "gradual", "auto")


def network(make: Callable[[random.Random], Any]) -> Callable[[random.Random], Any]:
    NETWORKS[make.__name__] = make
    return make


@network
def perceptron(draw: random.Random) -> Any:
    width = draw.randint(3, 14)
    model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))
    return model, lambda count: torch.randn(count, 6)


@network
def convolutions(draw: random.Random) -> Any:
    channels, groups = draw.choice([(4, 1), (4, 2), (4, 4), (6, 3)])
    model = nn.Sequential(
        nn.Conv2d(2, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(channels, channels, 3, stride=2, groups=groups),
        nn.Flatten(),
        nn.Linear(channels * 4, 3),
    )
    return model, lambda count: torch.randn(count, 2, 6, 6)


@network
def tied(draw: random.Random) -> Any:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    model[2].weight = model[0].weight
    return model, lambda count: torch.randn(count, 6)


@network
def tokens(draw: random.Random) -> Any:
    model = nn.Sequential(nn.Embedding(12, 5, sparse=draw.random() < 0.5), nn.Flatten(), nn.Linear(20, 3))
    return model, lambda count: torch.randint(12, (count, 4))


class Last(nn.Module):
    """The last outputs of a recurrent layer, through a linear one."""

    def __init__(self, inner: nn.Module, width: int):
        super().__init__()
        self.inner, self.head = inner, nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])


@network
def recurrent(draw: random.Random) -> Any:
    kind, width = draw.choice([nn.LSTM, nn.GRU, nn.RNN]), draw.randint(3, 6)
    return Last(kind(4, width, batch_first=True), width), lambda count: torch.randn(count, 5, 4)


class Attending(nn.Module):
    """An encoder layer, and the mean over its places."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).mean(1))


@network
def attention(draw: random.Random) -> Any:
    return Attending(), lambda count: torch.randn(count, 4, 8)


@dataclass
class Trial:
    """One pruning, all of it drawn from its number."""

    number: int
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = draw = random.Random(self.number)
        torch.manual_seed(self.number)
        self.kind = draw.choice(list(NETWORKS))
        self.model, inputs = NETWORKS[self.kind](draw)
        self.loss = draw.choice(list(LOSSES))
        count = draw.choice([25, 40, 70])
        x = inputs(count)
        y = torch.randint(3, (count,)) if self.loss == "cross_entropy" else torch.rand(count, 3)
        self.dtype = draw.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
        self.model = self.model.to(self.dtype)
        self.model.train(draw.random() < 0.5)
        floating = {id(t): t.to(self.dtype) if t.is_floating_point() else t for t in (x, y)}
        self.data: Any = (floating[id(x)], floating[id(y)])
        if draw.random() < 0.2:
            self.data = [(a, b) for a, b in zip(self.data[0].split(9), self.data[1].split(9), strict=True)]
        self.sparsity = draw.choice(SPARSITIES)
        self.method = draw.choice(ONE_SHOT) if draw.random() < 0.85 else draw.choice(OTHERS)
        self.budget: Any = draw.choice(["global", "global", "uniform"])
        self.settings = self._settings()

    def _settings(self) -> dict[str, Any]:
        draw = self.draw
        if self.method == "layerwise":
            return {"max_samples": 30}
        if self.method in OTHERS:
            return {"max_gradients": 300, **({"schedule": 2} if self.method == "staged" else {})}
        chosen: dict[str, Any] = {"num_gradients": draw.choice([8, 20]), "loss_samples": draw.choice([10, 30])}
        chosen |= {"damping": draw.choice([1e-4, 1e-2]), "blocks": draw.choice(["auto", "layer", "model", 7])}
        chosen |= {"gradient_batch": draw.choice([1, 1, 2])}
        if self.method in ("rmp", "cbs-s", "cbs"):
            chosen |= {"num_draws": 3}
        if draw.random() < 0.2:
            chosen |= {"dtype": torch.bfloat16}
        return chosen

    def run(self, in_place: bool = False) -> Any:
        model = copy.deepcopy(self.model) if in_place else self.model
        return brainsurgeon.prune(
            model,
            self.data,
            self.sparsity,
            self.method,
            self.loss,
            budget=self.budget,
            seed=self.number % 7,
            in_place=in_place,
            progress=False,
            **self.settings,
        )


def check(trial: Trial) -> None:
    """Recount everything with plain Python and the two models alone."""
    before = {name: value.detach().clone() for name, value in trial.model.state_dict().items()}
    modes = [module.training for module in trial.model.modules()]
    result = trial.run()
    parameters = dict(result.model.named_parameters())
    assert result.masks
    sizes = {name: mask.numel() for name, mask in result.masks.items()}
    prunable = {name: p.numel() for name, p in trial.model.named_parameters() if "weight" in name and p.dim() >= 2}
    assert sizes == prunable
    wanted = math.ceil(Fraction(str(trial.sparsity)) * sum(sizes.values()))
    flags = {name: mask.reshape(-1).tolist() for name, mask in result.masks.items()}
    assert sum(map(sum, flags.values())) == wanted == result.pruned
    for name, pruned in flags.items():
        values = parameters[name].detach().reshape(-1).tolist()
        trained = before[name].reshape(-1).tolist()
        assert all(value == 0.0 for value, gone in zip(values, pruned, strict=True) if gone)
        if trial.method in WITHOUT_UPDATE:
            assert all(v == t for v, t, gone in zip(values, trained, pruned, strict=True) if not gone)
        assert all(math.isfinite(value) for value in values)
        if trial.budget == "uniform":
            assert abs(Fraction(sum(pruned)) - Fraction(wanted * len(pruned), sum(sizes.values()))) < 1
    for name, value in trial.model.state_dict().items():
        assert torch.equal(value, before[name]), f"the original's {name} was changed"
    assert [module.training for module in trial.model.modules()] == modes
    assert [module.training for module in result.model.modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in result.model.parameters())
    again = trial.run(in_place=trial.draw.random() < 0.5)
    for name, value in result.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), f"the same seed gave another {name}"
    assert result.loss_after == again.loss_after


def resident() -> int:
    """Return the bytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    """Return the number of files that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def failures_of(first: int, count: int) -> list[str]:
    """Run many trials, and return the failures."""
    failures = []
    for number in range(first, first + count):
        trial = Trial(number)
        try:
            check(trial)
        except Exception as error:
            told = f"{number}: {trial.kind} {trial.method} {trial.sparsity} {trial.budget} {trial.loss} {trial.dtype}"
            failures.append(f"{told} {trial.settings}: {type(error).__name__}: {str(error)[:300]}")
    return failures
