"""Follow a recipe: every method at every sparsity, each outcome on disk as soon as it is there."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ..events import Callback, Event, silent
from ..recipe import Recipe
from ..result import PruningResult
from ..scores import measure
from ..surgery import Surgery
from ..target import Target, load_target, seed_globals
from ..versions import versions
from ..weights import find_weights
from .cells import Cell
from .checks import check_fits, check_same_data, check_same_examination, check_same_model
from .folder import RunFolder
from .staged import prune_cell_in_stages
from .steps import Steps


def execute(run: RunFolder, callback: Callback = silent) -> list[Cell]:
    """Do what is still to do of a run, and return all its cells."""
    recipe = run.recipe
    cells = [Cell(name, s, run.cell(name, s)) for s in recipe.sparsities for name in recipe.methods]
    with run.locked():
        missing = [cell for cell in cells if not cell.finished]
        if missing:
            with _threads(recipe.threads):
                _finish(run, recipe, missing, len(cells), callback)
        shutil.rmtree(run.steps, ignore_errors=True)  # the results hold all that they said
    return cells


def _finish(run: RunFolder, recipe: Recipe, missing: list[Cell], total: int, callback: Callback) -> None:
    told = _Labelled(callback)
    target = _load(recipe)
    check_fits(run, recipe, target, len(missing))
    check_same_model(run, target)
    settings = recipe.settings()
    weights = find_weights(target.model, settings.include, settings.exclude)
    dense = weights.flatten(target.model)
    staged = [cell for cell in missing if recipe.in_stages(cell.method)]
    at_once = [cell for cell in missing if cell not in staged]
    number = total - len(missing)
    if total > 1:
        told(Event("cells", number, total))
    for cells, prepare in ((at_once, _at_once), (staged, _in_stages)):
        if not cells:
            continue
        seed_globals(settings.seed)
        prune = prepare(run, recipe, target, told)
        if "dense" not in run.facts():
            run.note(dense=measure(target), versions=versions(settings.device))
        for cell in cells:
            told.label, number = cell.name, number + 1
            result = prune(cell)
            scores = cell.save(result, target, weights, dense)
            told(Event("cells", number, total, {**scores, "sample loss": result.loss_after}))


def _load(recipe: Recipe) -> Target:
    return load_target(recipe.target, recipe.arguments, recipe.checkpoint, recipe.settings().seed)


def _at_once(run: RunFolder, recipe: Recipe, target: Target, told: Callback) -> Callable[[Cell], PruningResult]:
    """Examine the model once for all methods that prune it in one go; each of their steps is kept."""
    methods = {name: method for name, method in recipe.make_methods().items() if not recipe.in_stages(name)}
    curvature = any(method.uses_curvature for method in methods.values())
    surgery = Surgery(
        target.model, target.data, target.loss, recipe.settings(), curvature=curvature, progress=False, callback=told
    )
    notes = check_same_examination(run, surgery)
    steps = Steps(run.steps)

    sparsity: float | None = None

    def prune(cell: Cell) -> PruningResult:
        nonlocal sparsity
        if sparsity is not None and sparsity != cell.sparsity:  # no later cell asks for these steps again
            steps.clear()
        method, sparsity = methods[cell.method], cell.sparsity
        result = surgery.prune(cell.sparsity, steps.keeping(method), budget=recipe.budget)
        settings = {**result.settings, "method": method.describe()}
        return dataclasses.replace(result, settings=settings, notes=result.notes + notes)

    return prune


def _in_stages(run: RunFolder, recipe: Recipe, target: Target, told: Callback) -> Callable[[Cell], PruningResult]:
    """Prune each cell from the dense model; its last finished stage is kept."""
    check_same_data(run, target, recipe.settings().seed)

    def prune(cell: Cell) -> PruningResult:
        fresh = _load(recipe) if isinstance(target.data, Iterator) else target  # an iterator can be read once
        seed_globals(recipe.settings().seed)
        return prune_cell_in_stages(recipe, fresh, cell, run.steps, told)

    return prune


class _Labelled:
    """Says of each event which cell it belongs to."""

    def __init__(self, callback: Callback):
        self.callback, self.label = callback, ""

    def __call__(self, event: Event) -> None:
        self.callback(dataclasses.replace(event, label=self.label))


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Work with a number of threads: sums come out the same, to the last bit, only with the same number."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
