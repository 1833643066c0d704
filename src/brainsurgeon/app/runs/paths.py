"""Goals and sweeps of a run: their legs are kept on disk, so that a killed run goes on after the last finished one."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from brainsurgeon.app.runs.folder import RunFolder, is_finished
from brainsurgeon.app.target import Target
from brainsurgeon.pruning.goal import Goal
from brainsurgeon.pruning.methods import Method
from brainsurgeon.pruning.reach import reach
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.pruning.sweep import sweep_legs


@dataclass(frozen=True)
class FolderKeep:
    """Keeps the legs of a goal, each in a folder of its own that appears whole or not at all."""

    folder: Path
    model: nn.Module

    def load(self, number: int, sparsity: float) -> PruningResult | None:
        """Return a leg that was finished before."""
        place = self.folder / f"{number}@{sparsity!r}"
        return PruningResult.load(place, copy.deepcopy(self.model)) if is_finished(place) else None

    def save(self, number: int, result: PruningResult) -> None:
        """Keep a leg."""
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / f"{number}@{result.sparsity!r}"
        temporary = place.with_name(f".{place.name}.tmp")
        for old in (temporary, place):
            shutil.rmtree(old, ignore_errors=True)
        result.save(temporary)
        temporary.replace(place)


@dataclass(frozen=True)
class CellKeep:
    """The legs of a sweep are the cells of its run, which are written by whoever follows the recipe."""

    run: RunFolder
    method: str
    model: nn.Module

    def load(self, number: int, sparsity: float) -> PruningResult | None:
        """Return a leg whose cell is finished."""
        cell = self.run.cell(self.method, sparsity)
        return PruningResult.load(cell, copy.deepcopy(self.model)) if is_finished(cell) else None

    def save(self, number: int, result: PruningResult) -> None:
        """Leave it to the cell."""


def reach_goal(run: RunFolder, surgery: Surgery, target: Target, method: Method) -> PruningResult:
    """Find the network that the recipe's goal asks for."""
    recipe = run.recipe
    goal = Goal(**{**(recipe.goal or {}), "validation": target.validation})
    keep = FolderKeep(run.steps / "legs" / method.name, target.model)
    return reach(surgery, goal, method, budget=recipe.budget, seed=surgery.seed, keep=keep)


def sweep_cells(run: RunFolder, surgery: Surgery, target: Target, name: str, method: Method) -> Iterator[PruningResult]:
    """Yield the networks of a sweep; those of finished cells are read."""
    recipe = run.recipe
    return sweep_legs(
        surgery,
        recipe.sparsities,
        method,
        budget=recipe.budget,
        seed=surgery.seed,
        validation=target.validation,
        keep=CellKeep(run, name, target.model),
    )
