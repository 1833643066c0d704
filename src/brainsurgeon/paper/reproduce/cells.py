"""Cells: one method at one sparsity from one seed, computed once and kept as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from brainsurgeon.engine.selection import Given
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import Protocol, load_images, load_network, training_samples
from brainsurgeon.pruning.methods import RIVALS, SHORT, UPDATES, make_method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.surgery import Surgery

Cell = dict[str, Any]


def cell_file(results: Path, network: str, seed: int) -> Path:
    """Return the file of a network's cells from one seed."""
    return results / f"{network}-seed{seed}.jsonl"


def read_cells(results: Path, network: str) -> list[Cell]:
    """Return every finished cell of a network; a line cut short by a crash is left out."""
    cells = []
    for path in sorted(results.glob(f"{network}-seed*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                cells.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return cells


def compute(
    protocol: Protocol,
    results: Path,
    checkpoints: list[Path],
    *,
    sparsities: tuple[float, ...] | None = None,
    methods: tuple[str, ...] | None = None,
    seeds: Sequence[int] | None = None,
    root: Path | None = None,
    device: str = "cpu",
    callback: Callback = silent,
) -> None:
    """Compute the cells that are still missing."""
    results.mkdir(parents=True, exist_ok=True)
    wanted = [
        (seed, sparsity, method)
        for seed in (range(protocol.seeds) if seeds is None else seeds)
        for sparsity in sparsities or protocol.sparsities
        for method in methods or protocol.methods
    ]
    finished = {(cell["seed"], cell["sparsity"], cell["method"]) for cell in read_cells(results, protocol.network)}
    missing = [key for key in wanted if key not in finished]
    if not missing:
        return
    data = load_images(protocol, root)
    model = load_network(protocol, checkpoints).to(device)
    done = len(wanted) - len(missing)
    for seed in sorted({key[0] for key in missing}):
        keys = [(sparsity, method) for s, sparsity, method in missing if s == seed]
        with cell_file(results, protocol.network, seed).open("a") as file:
            for cell in _of_seed(protocol, model, data, seed, keys):
                file.write(json.dumps(cell) + "\n")
                file.flush()
                done += 1
                callback(Event("cells", done, len(wanted), {"accuracy": cell["accuracy"]}))


def _of_seed(
    protocol: Protocol, model: torch.nn.Module, data: ImageData, seed: int, keys: list[tuple[float, str]]
) -> Iterator[Cell]:
    surgery = Surgery(model, training_samples(protocol, data, seed), seed=seed, progress=False, **protocol.settings)
    shared = _shared_seconds(surgery, any("wf" in method for _, method in keys))
    for sparsity in sorted({sparsity for sparsity, _ in keys}):
        masks: dict[str, PruningResult] = {}
        for method in [method for s, method in keys if s == sparsity]:
            result, seconds = _prune(surgery, sparsity, method, masks, shared)
            parts = shared if "wf" in method else {k: v for k, v in shared.items() if k != "inverse"}
            yield {
                "network": protocol.network,
                "method": method,
                "sparsity": sparsity,
                "seed": seed,
                "pruned": result.pruned,
                "size": result.size,
                "accuracy": accuracy(result.model, data),
                "loss_before": result.loss_before,
                "loss_after": result.loss_after,
                "predicted_change": result.predicted_change,
                "seconds": {name: round(value, 4) for name, value in {**parts, **seconds}.items()},
                "scale": next((event.values["scale"] for event in result.trace if event.stage == "scale"), None),
                "settings": result.settings,
                "notes": list(result.notes),
                "versions": versions(surgery.device),
            }


def _shared_seconds(surgery: Surgery, inverse: bool) -> dict[str, float]:
    """Examine the model; return the seconds of what methods share: gradients and, for WoodFisher, an inverse."""
    method = make_method("wf-s", surgery.settings)
    assert isinstance(method, OneShot)
    found = surgery.examined(method.examining, curvature=True)
    clock = Clock(surgery.device)
    if inverse and found.quadratic is not None:
        with clock.measure("inverse"):
            _ = found.quadratic.inverse_diagonal
    return {**found.seconds, **clock.seconds}


def _prune(
    surgery: Surgery, sparsity: float, method: str, masks: dict[str, PruningResult], shared: dict[str, float]
) -> tuple[PruningResult, dict[str, float]]:
    """Prune by a selection once, and by each update from the mask it gave; `@s` after a name fixes the scale."""
    name, _, scale = method.partition("@")
    selection, _, update = SHORT.get(name, name).partition("+")
    if selection not in masks:
        masks[selection] = surgery.prune(sparsity, selection)
    chosen = masks[selection]
    own = {k: v for k, v in chosen.seconds.items() if k not in shared}
    if not update:
        return chosen, own
    whole = OneShot(Given(chosen.masks), UPDATES[update](), RIVALS.get(method, ()), method)
    result = surgery.prune(sparsity, make_method(whole, {"update_scale": float(scale)} if scale else {}))
    seconds = {k: v for k, v in result.seconds.items() if k.startswith("update")}
    return result, {**{k: v for k, v in own.items() if k.startswith("selection")}, **seconds}
