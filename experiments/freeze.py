"""What `freeze_zeros` costs: a training step with it and without, timed in turn (python -m experiments.freeze)."""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from brainsurgeon import freeze_zeros
from brainsurgeon.files.versions import versions
from brainsurgeon.network.weights import find_weights
from brainsurgeon.network.zeros import set_zeros
from brainsurgeon.paper.models import build
from experiments.records import BENCHMARKS, Record, write

SHAPES = {"mlpnet": (1, 28, 28), "resnet20": (3, 32, 32), "mobilenet-0.75": (3, 96, 96)}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
}


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> Callable[[], None]:
    """Return one training step."""
    targets = torch.zeros(len(inputs), dtype=torch.long)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def least_disturbed(seconds: list[float]) -> float:
    """Return the fastest tenth, in milliseconds: what else runs on the machine is not our cost."""
    return 1000 * statistics.quantiles(seconds, n=10)[0]


def cell(name: str, kind: str, batch: int, seconds: float) -> Record:
    """Time the steps of one network with one optimizer, in turn, and the hooks alone."""
    generator = torch.Generator().manual_seed(0)
    plain = build(name)
    set_zeros(plain, {la.name: torch.rand(la.shape, generator=generator) < 0.9 for la in find_weights(plain).layers})
    frozen = copy.deepcopy(plain)
    inputs = torch.randn(batch, *SHAPES[name], generator=generator)
    optimizers = [OPTIMIZERS[kind](model.parameters()) for model in (plain, frozen)]
    hold = freeze_zeros(frozen, optimizers[1])
    steps = [stepper(model, optimizer, inputs) for model, optimizer in zip((plain, frozen), optimizers, strict=True)]
    times: list[list[float]] = [[], []]
    while sum(map(sum, times)) < seconds or len(times[0]) < 5:
        for step, own in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            own.append(time.perf_counter() - start)
    hold.count()
    without, with_it = map(least_disturbed, times)
    hooks = []
    for _ in range(200):
        start = time.perf_counter()
        for parameter_name, parameter in hold._parameters.items():
            hold._clear_gradient(parameter_name, parameter)
        hold._after_step()
        hooks.append(time.perf_counter() - start)
    return {
        "network": name,
        "optimizer": kind,
        "batch": batch,
        "without_ms": without,
        "with_ms": with_it,
        "hooks_ms": least_disturbed(hooks),
        "share": least_disturbed(hooks) / without,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Time every network and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="for each cell")
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "freeze.json")
    options = parser.parse_args(arguments)
    cells = [cell(name, kind, 64, options.seconds) for name in SHAPES for kind in OPTIMIZERS]
    for found in cells:
        print(found)
    write(options.output, {"command": "python -m experiments.freeze", "versions": versions("cpu"), "cells": cells})


if __name__ == "__main__":
    main()
