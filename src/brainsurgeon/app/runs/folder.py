"""The folder of a run: made once, never shared with another run, never written to by two processes at a time.

recipe.yaml                everything that the run needs
run.json                   versions, the model's fingerprint, the scores of the dense model
log.txt                    what happened when
steps/                     the last stage of cells that are under way
result/ or cells/NAME/     a finished cell: model, masks, result.json, measured.json
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from brainsurgeon.app.recipe import Recipe, make_recipe, read_recipe
from brainsurgeon.app.trust import sign
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.sealed import parse_object
from brainsurgeon.files.writing import check_writable, write_whole
from brainsurgeon.network.memory import DoesNotFitError

HUGGINGFACE = "huggingface"
"""In a cell, the folder of a pruned model that was on disk all the time, as `from_pretrained` reads it."""
MIB = 1 << 20
SPARE = 64 * MIB
"""Disk that is asked for beyond what a run is known to write."""


class RunError(BrainsurgeonError):
    """A run that cannot start or go on."""


@dataclass(frozen=True)
class RunFolder:
    """A run on disk; a `fresh` one was made just now."""

    path: Path
    fresh: bool = field(default=False, compare=False)

    @classmethod
    def create(cls, recipe: Recipe, path: Path | None = None, kind: str = "prune") -> RunFolder:
        """Make a new folder; by default one under `runs/`, named by the time and the recipe."""
        run = cls(_claimed(path) if path else _unused(Path("runs"), _name(recipe, kind)), fresh=True)
        with _writable(run.path):
            write_whole(run.path / "recipe.yaml", recipe.to_yaml())
            sign(run.path)
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of a run that was started before."""
        if not (path / "recipe.yaml").is_file():
            raise RunError(f"{path} is not the folder of a run: it has no recipe.yaml")
        return cls(path)

    def discard(self) -> None:
        """Remove what a start that failed has written, and the folder; a mount point or a link stays."""
        with suppress(OSError):
            for written in list(self.path.iterdir()):
                if written.is_dir() and not written.is_symlink():
                    shutil.rmtree(written)
                else:
                    written.unlink()
            self.path.rmdir()

    @cached_property
    def recipe(self) -> Recipe:
        """The full recipe that it was started with."""
        path = self.path / "recipe.yaml"
        return make_recipe(read_recipe(path), str(path))

    @property
    def copy(self) -> Path:
        """Where a model that stays on disk is while it is pruned."""
        return self.steps / HUGGINGFACE

    @property
    def steps(self) -> Path:
        """Where the states of unfinished cells are."""
        return self.path / "steps"

    def cell(self, method: str, sparsity: float) -> Path:
        """Return the folder that the outcome of one method at one sparsity has, or will have."""
        recipe = self.recipe
        alone = len(recipe.methods) == len(recipe.sparsities) == 1
        return self.path / "result" if alone else self.path / "cells" / cell_name(method, sparsity)

    def cells(self) -> list[Path]:
        """Return the folders of the finished cells, in the recipe's order."""
        recipe = self.recipe
        wanted = [self.cell(method, sparsity) for sparsity in recipe.sparsities for method in recipe.methods]
        return [cell for cell in wanted if is_finished(cell)]

    def facts(self) -> dict[str, Any]:
        """Return what run.json says."""
        path = self.path / "run.json"
        return parse_object(path.read_bytes(), path) if path.is_file() else {}

    def note(self, **facts: Any) -> None:
        """Add to run.json."""
        write_whole(self.path / "run.json", json.dumps({**self.facts(), **facts}, indent=2))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; the lock goes with the process, however it ends."""
        with _writable(self.path), (self.path / ".lock").open("w") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # no such locks on this system
                pass
            except OSError as error:
                raise RunError(f"{self.path} is being worked on by another process") from error
            yield

    def check_disk(self, needed: int) -> None:
        """Refuse to start what the disk cannot hold."""
        free = shutil.disk_usage(self.path).free
        if needed + SPARE > free:
            raise DoesNotFitError(
                f"this run will write {needed / MIB:,.0f} MiB to {self.path} (and {SPARE / MIB:.0f} MiB should be "
                f"left), but {free / MIB:,.0f} MiB are free there: make room, or give another place with --output"
            )


def cell_name(method: str, sparsity: float) -> str:
    """Return the name of one method at one sparsity; two sparsities never share one."""
    return f"{method}@{sparsity!r}"


def is_finished(cell: Path) -> bool:
    """Say whether a cell's folder holds its record and its model."""
    models = ("model.safetensors", "model.compressed.safetensors", f"{HUGGINGFACE}/config.json")
    return (cell / "result.json").is_file() and any((cell / name).is_file() for name in models)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        check_writable(folder)
    except BrainsurgeonError as error:
        raise RunError(str(error)) from error
    yield


def _claimed(path: Path) -> Path:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        resume = f", or go on with it: --resume {path}" if (path / "recipe.yaml").is_file() else ""
        raise RunError(f"{path} is there already and not empty: give a new folder{resume}")
    return path


def _name(recipe: Recipe, kind: str) -> str:
    by_layer = recipe.sparsity is None and isinstance(recipe.budget, dict)
    share = "goal" if recipe.goal else "budget" if by_layer else f"{recipe.sparsities[0]:g}"
    what = f"{recipe.methods[0]}-{share}" if kind == "prune" else kind
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{what}"


def _unused(parent: Path, name: str) -> Path:
    """Make a folder of its own; of two runs that start at once, one gets a number."""
    with _writable(parent):
        for number in range(1, 1000):
            path = parent / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise RunError(f"{parent} has a thousand runs called {name}")
