"""The state of a run on disk: what a killed run goes on from, with what it told on the way there."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.progress import TRACED
from brainsurgeon.files.checkpoint import save_tensors
from brainsurgeon.files.writing import write_whole
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.staged.state import Choice, State

PART = "part"
RECORD = "record"
BEFORE = "before it was resumed"
NOTED = 0.5
"""Seconds after which the time that a run has taken is written down again."""


class FileStore:
    """Keeps the last state of one cell in a file, with the events that led there and the seconds it took."""

    def __init__(self, path: Path, device: torch.device):
        self._path, self._device, self._since = path, device, time.perf_counter()
        self.events: list[Event] = []
        self.loaded = 0
        self.seconds = self.spent = self._noted = _seconds(path)

    def notice(self, event: Event) -> None:
        """Take note of an event of the run, and of the seconds that it has taken: a limit counts them all."""
        if event.stage in TRACED:
            self.events.append(event)
        now = self.spent + time.perf_counter() - self._since
        if now - self._noted > NOTED:
            self._noted = now
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(_beside(self._path), f"{now:.3f}")

    def child(self, name: str) -> FileStore:
        """Return the store of a method that runs inside another one."""
        return FileStore(self._path.with_name(f"{self._path.stem}.{name}{self._path.suffix}"), self._device)

    def save(self, state: State) -> None:
        """Keep a state, in place of the last."""
        plain: dict[str, Any] = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        tensors = {name: plain.pop(name) for name, value in list(plain.items()) if isinstance(value, Tensor)}
        record = {
            "state": plain | {"choice": dataclasses.asdict(state.choice)},
            "events": [dataclasses.asdict(event) for event in self.events],
            "seconds": self.spent + time.perf_counter() - self._since,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(tensors, self._path, {RECORD: json.dumps(record)})

    def load(self) -> State | None:
        """Return the last state that was kept."""
        if not self._path.is_file():
            return None
        try:
            read, metadata = _read(self._path, self._device)
            tensors: dict[str, Any] = {**read}
            record = json.loads(metadata[RECORD])
            plain = record["state"]
            state = State(**tensors, **{**plain, "choice": Choice(**plain["choice"])})
            self.events = [Event(**event) for event in record["events"]]
            self.loaded, self.seconds = state.number, float(record["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(self._path, error) from error
        return state

    def save_part(self, number: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep what a run that goes on must know of one of its parts, in a file of its own."""
        path = self._part(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(tensors, path, {PART: self._name(number)})

    def load_part(self, number: int) -> dict[str, Tensor] | None:
        """Return what was kept of a part, None where it was not done."""
        path = self._part(number)
        if not path.is_file():
            return None
        tensors, metadata = _read(path, self._device)
        if metadata.get(PART) != self._name(number):
            raise _damaged(path, ValueError(f"it holds {metadata.get(PART, 'another file')}"))
        return tensors

    def _name(self, number: int) -> str:
        return f"part {number} of {self._path.stem}"

    def _part(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.stem}.parts") / f"{number}.safetensors"

    def completed(self, result: PruningResult) -> PruningResult:
        """Return the record of a run as if it had not been interrupted, but for the break-down of its seconds."""
        if not self.loaded:
            return result
        settings = {**result.settings, "resumed_after_stage": self.loaded}
        seconds = {BEFORE: self.seconds, **result.seconds}
        return dataclasses.replace(result, settings=settings, seconds=seconds, trace=tuple(self.events))


def _beside(path: Path) -> Path:
    return path.with_suffix(".seconds")


def _seconds(path: Path) -> float:
    """Return the seconds that earlier processes have worked on this, as far as they wrote it down."""
    try:
        seconds = float(_beside(path).read_text())
        return seconds if 0 <= seconds < math.inf else 0.0
    except (OSError, ValueError):  # none yet, or none that was finished
        return 0.0


def _read(path: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name).to(device) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> BrainsurgeonError:
    return BrainsurgeonError(
        f"{path} is damaged ({type(error).__name__}: {error}): delete it, and the run begins this result again"
    )
