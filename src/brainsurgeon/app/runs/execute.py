"""Follow a recipe: every method at every sparsity, each outcome on disk as soon as it is there."""

from __future__ import annotations

import dataclasses
import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from brainsurgeon.app.recipe import Recipe
from brainsurgeon.app.runs.cells import Cell
from brainsurgeon.app.runs.checks import check_fits, check_same_data, check_same_model
from brainsurgeon.app.runs.folder import RunError, RunFolder
from brainsurgeon.app.runs.paths import reach_goal, sweep_cells
from brainsurgeon.app.runs.store import FileStore
from brainsurgeon.app.scores import measure
from brainsurgeon.app.target import load_target, seed_globals
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.files.versions import versions
from brainsurgeon.network.held import held_in
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.surgery import Surgery


def execute(run: RunFolder, callback: Callback = silent) -> list[Cell]:
    """Do what is still to do of a run, and return all its cells."""
    recipe = run.recipe
    sparsities = sorted(recipe.sparsities) if recipe.sweep else recipe.sparsities  # legs of one run rise
    cells = [Cell(name, s, run.cell(name, s)) for s in sparsities for name in recipe.methods]
    with run.locked():
        missing = [cell for cell in cells if not cell.finished]
        if missing:
            with _threads(recipe.threads), _full_disk_told(run):
                _finish(run, recipe, missing, len(cells), callback)
        shutil.rmtree(run.steps, ignore_errors=True)  # the results hold all that they said
    return cells


def _finish(run: RunFolder, recipe: Recipe, missing: list[Cell], total: int, callback: Callback) -> None:
    label, store = "", None

    def notify(event: Event) -> None:
        if store is not None:
            store.notice(event)
        callback(dataclasses.replace(event, label=label))

    shutil.rmtree(run.copy, ignore_errors=True)  # one that a killed run has worked on is pruned in part
    target = load_target(recipe.target, recipe.arguments, recipe.checkpoint, recipe.seed, run.copy)
    held = bool(held_in(target.model))
    if held and (total > 1 or recipe.sweep or recipe.goal is not None):
        raise RunError("a model on disk is pruned there, once: give one method and one sparsity, or load it whole")
    check_fits(run, recipe, target, len(missing))
    check_same_model(run, target)
    check_same_data(run, target, recipe.seed)
    common = recipe.common(target.exclude)
    surgery = Surgery(target.model, target.data, target.loss, **common, progress=False, callback=notify)
    methods, swept = recipe.make_methods(), dict[str, Iterator[PruningResult]]()
    number = total - len(missing)
    if total > 1:
        notify(Event("cells", number, total))
    for cell in missing:
        if "dense" not in run.facts():
            run.note(dense=measure(target), versions=versions(surgery.device))
        seed_globals(recipe.seed)
        label, number, method = cell.name, number + 1, methods[cell.method]
        if recipe.goal is not None:
            label = f"{cell.method}@goal"
            result = reach_goal(run, surgery, target, method)
        elif recipe.sweep:
            legs = swept.setdefault(cell.method, sweep_cells(run, surgery, target, cell.method, method))
            result = next(found for found in legs if found.sparsity == cell.sparsity)
        else:
            store = FileStore(run.steps / f"{cell.name}.safetensors", surgery.device)
            sparsity = recipe.sparsity_of(cell.sparsity, surgery.weights.parts)
            found = surgery.prune(sparsity, method, budget=recipe.budget, store=store, in_place=held)
            result = store.completed(found)
        if held:
            scores = cell.save_on_disk(result, target, run.copy)
        else:
            scores = cell.save(result, target, surgery.weights, surgery.values)
        after = {} if result.loss_after is None else {"sample loss": result.loss_after}
        notify(Event("cells", number, total, {**scores, **after}))


@contextmanager
def _full_disk_told(run: RunFolder) -> Iterator[None]:
    """Say in words that the disk is full: what is written appears whole or not at all, so nothing is lost."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunError(
            f"the disk that holds {run.path} is full. What was finished is there: make room, and go on with "
            f"--resume {run.path}"
        ) from error


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Work with a number of threads: sums come out the same, to the last bit, only with the same number."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
