"""Runs in stages: where they stand is kept after every stage, and what they told on the way there."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from ..checkpoint import save_tensors
from ..events import Callback, Event
from ..gradual import prune_in_stages
from ..progress import TRACED
from ..recipe import Recipe
from ..result import PruningResult
from ..staged import Effort, Stand
from ..target import Target
from .cells import Cell
from .steps import RECORD

BEFORE = "before it was resumed"


class StageKeeper:
    """Keeps the last stand of one cell in a file, with the events that led there and the seconds it took."""

    def __init__(self, path: Path, device: torch.device):
        self._path, self._device, self._since = path, device, time.perf_counter()
        self.events: list[Event] = []
        self.loaded = 0
        self.seconds = 0.0

    def notice(self, event: Event) -> None:
        """Take note of an event of the run."""
        if event.stage in TRACED:
            self.events.append(event)

    def save(self, stand: Stand) -> None:
        """Keep a stand, in place of the last."""
        plain = {field.name: getattr(stand, field.name) for field in dataclasses.fields(stand)}
        tensors = {name: plain.pop(name) for name, value in list(plain.items()) if isinstance(value, Tensor)}
        record = {
            "stand": plain,
            "events": [dataclasses.asdict(event) for event in self.events],
            "seconds": self.seconds + time.perf_counter() - self._since,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(tensors, self._path, {RECORD: json.dumps(record)})

    def load(self) -> Stand | None:
        """Return the last stand that was kept."""
        if not self._path.is_file():
            return None
        from safetensors import safe_open

        with safe_open(self._path, "pt") as file:
            tensors = {name: file.get_tensor(name).to(self._device) for name in file.keys()}  # noqa: SIM118
            record = json.loads(file.metadata()[RECORD])
        self.events = [Event(**event) for event in record["events"]]
        self.loaded, self.seconds = record["stand"]["number"], record["seconds"]
        return Stand(**tensors, **record["stand"])

    def completed(self, result: PruningResult) -> PruningResult:
        """Return the record of a run as if it had not been interrupted, but for the break-down of its seconds."""
        if not self.loaded:
            return result
        settings = {**result.settings, "resumed_after_stage": self.loaded}
        seconds = {BEFORE: self.seconds, **result.seconds}
        return dataclasses.replace(result, settings=settings, seconds=seconds, trace=tuple(self.events))


def prune_cell_in_stages(recipe: Recipe, target: Target, cell: Cell, folder: Path, callback: Callback) -> PruningResult:
    """Prune one cell in stages, from where it stands."""
    settings = recipe.settings()
    device = torch.device(settings.device or next(target.model.parameters()).device)
    keeper = StageKeeper(folder / f"{cell.name}.safetensors", device)

    def tell(event: Event) -> None:
        keeper.notice(event)
        callback(event)

    result = prune_in_stages(
        target.model, target.data, cell.sparsity, recipe.make_methods()[cell.method], target.loss, recipe.stages(),
        settings, effort=Effort(recipe.max_gradients or Effort.max_gradients, recipe.max_seconds),
        curvature=recipe.curvature or "auto", max_samples=recipe.max_samples, recalibrate=recipe.recalibrate,
        budget=recipe.budget, progress=False, callback=tell, keeper=keeper,
    )  # fmt: skip
    return keeper.completed(result)
