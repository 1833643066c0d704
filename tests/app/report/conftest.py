"""Runs on disk as the command leaves them, made without pruning anything: as many layers and methods as wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunFolder

METHODS = ("mp", "wf", "cbs-s", "cbs", "algorithm1+cbs-u")
SPARSITIES = (0.5, 0.8, 0.9, 0.95, 0.98)
COST = {
    "bytes_dense": 130_344,
    "bytes_compressed": 12_345,
    "multiply_adds": 32_200,
    "multiply_adds_sparse": 1_618,
    "batch": 1,
    "latencies": [{"runtime": "torch", "milliseconds": 0.0421, "sparse": False, "note": "dense kernels"}],
}


def write_run(
    folder: Path,
    layers: Sequence[str],
    methods: Sequence[str] = METHODS,
    sparsities: Sequence[float] = SPARSITIES,
    **more: Any,
) -> Path:
    """Write a run with a finished cell for every method and sparsity; `more` goes into measured.json."""
    names, values = list(methods), list(sparsities)
    alone = len(names) == len(values) == 1
    recipe = make_recipe({"target": "demo", "method": names if len(names) > 1 else names[0], "sparsity": values})
    RunFolder.create(recipe, folder)
    facts = {"model": "a" * 64, "versions": {"brainsurgeon": "1.0"}, "dense": {"accuracy": 93.97, "loss": 0.21}}
    (folder / "run.json").write_text(json.dumps(facts))
    for number, method in enumerate(names):
        for sparsity in values:
            cell = folder / "result" if alone else folder / "cells" / f"{method}@{sparsity!r}"
            write_cell(cell, layers, method, sparsity, number, **more)
    return folder


def write_cell(
    cell: Path, layers: Sequence[str], method: str, sparsity: float, number: int = 0, **more: Any
) -> dict[str, Any]:
    """Write one finished cell and return its record."""
    cell.mkdir(parents=True)
    counted = [
        {"name": name, "shape": [8, 25], "pruned": round(200 * sparsity) - k % 7, "size": 200}
        for k, name in enumerate(layers)
    ]
    record = {
        "method": method,
        "sparsity": sparsity,
        "pruned": sum(layer["pruned"] for layer in counted),
        "size": 200 * len(counted),
        "predicted_change": 0.1,
        "loss_before": 0.2,
        "loss_after": 0.2 + sparsity / (number + 2),
        "seconds": {"gradients": 2.0, "search": 1.5, "update": 0.25},
        "settings": {"num_gradients": 100, "selection": {"window": 10}, "seed": None},
        "notes": ["the damping was raised"],
        "layers": counted,
        "trace": [{"stage": "search", "done": k, "cost": 1 / k, "loss": 0.5, "swaps": 9 - k} for k in range(1, 8)],
    }
    (cell / "result.json").write_text(json.dumps(record))
    histograms = [{"name": "all layers", "reach": 0.5, "before": [3, 9, 30, 9, 3], "after": [3, 8, 0, 8, 3]}]
    scores = {"accuracy": 94 - 30 * sparsity**8 + number, "loss": 0.3 + sparsity / (number + 1)}
    measured = {"scores": scores, "histograms": histograms, **more}
    (cell / "measured.json").write_text(json.dumps(measured))
    masks = {}
    for layer in counted[:3]:
        masks[layer["name"]] = torch.zeros(200, dtype=torch.bool)
        masks[layer["name"]][: layer["pruned"]] = True
    save_file({name: mask.reshape(8, 25) for name, mask in masks.items()}, cell / "masks.safetensors")
    (cell / "model.safetensors").write_bytes(b"0" * 4321)
    return record


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """Write a run: `make_run(folder, layers, methods, sparsities, **more)`."""
    return write_run


@pytest.fixture(scope="session")
def make_cell() -> Callable[..., dict[str, Any]]:
    """Write a single result: `make_cell(folder, layers, method, sparsity, **more)`."""
    return write_cell


@pytest.fixture(scope="session")
def cost() -> dict[str, Any]:
    """Return what `evaluate --keep` adds."""
    return COST
