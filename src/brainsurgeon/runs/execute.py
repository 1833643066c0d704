"""Follow a recipe: every method at every sparsity, each outcome on disk as soon as it is there."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..events import Callback, Event, silent
from ..memory import check_memory
from ..methods import Method
from ..recipe import Recipe
from ..result import PruningResult
from ..scores import measure
from ..surgery import Surgery
from ..target import Target, load_target
from ..versions import versions
from ..weights import find_weights
from .folder import RunError, RunFolder
from .portrait import histograms
from .steps import Steps, digest

log = logging.getLogger(__name__)

CLOSE = 1e-4
"""Two examinations of the same model differ by less, whatever the order in which a GPU adds up."""
PROBED = 4  # batches of the sample loss


@dataclass(frozen=True)
class Cell:
    """One method at one sparsity, finished."""

    method: str
    sparsity: float
    folder: Path

    @property
    def name(self) -> str:
        """Its name in a table, a log or a folder."""
        return f"{self.method}@{self.sparsity:g}"

    def result(self) -> dict[str, Any]:
        """Return the record of the result."""
        return json.loads((self.folder / "result.json").read_text())

    def measured(self) -> dict[str, Any]:
        """Return scores and histograms."""
        return json.loads((self.folder / "measured.json").read_text())


def execute(run: RunFolder, callback: Callback = silent) -> list[Cell]:
    """Do what is still to do of a run, and return all its cells."""
    recipe = run.recipe
    methods = recipe.make_methods()
    cells = [Cell(name, s, run.cell(name, s)) for s in recipe.sparsities for name in recipe.methods]
    with run.locked():
        missing = [cell for cell in cells if not (cell.folder / "result.json").is_file()]
        if missing:
            with _threads(recipe.threads):
                _finish(run, recipe, methods, missing, len(cells), callback)
        shutil.rmtree(run.steps, ignore_errors=True)  # the results hold all that they said
    return cells


def _finish(
    run: RunFolder, recipe: Recipe, methods: dict[str, Method], missing: list[Cell], total: int, callback: Callback
) -> None:
    target = load_target(recipe.target, recipe.arguments, recipe.checkpoint, recipe.settings().seed)
    check_fits(run, recipe, target, len(missing))
    _same(run, "model", _fingerprint(target), "the model has other weights")
    told = _Labelled(callback)
    surgery = examine(recipe, target, methods, told)
    notes = _same_examination(run, surgery)
    if "dense" not in run.facts():
        run.note(dense=measure(target), versions=versions(surgery.device))
    steps = Steps(run.steps)
    for number, cell in enumerate(missing, 1 + total - len(missing)):
        method, told.label = methods[cell.method], cell.name
        result = surgery.prune(cell.sparsity, steps.keeping(method), budget=recipe.budget)
        settings = {**result.settings, "method": method.describe()}
        result = dataclasses.replace(result, settings=settings, notes=result.notes + notes)
        scores = _save(cell, result, target, surgery)
        told(Event("cells", number, total, {**scores, "sample loss": result.loss_after}))


class _Labelled:
    """Says of each event which cell it belongs to."""

    def __init__(self, callback: Callback):
        self.callback, self.label = callback, ""

    def __call__(self, event: Event) -> None:
        self.callback(dataclasses.replace(event, label=self.label))


def examine(recipe: Recipe, target: Target, methods: dict[str, Method], callback: Callback = silent) -> Surgery:
    """Take the gradients and the sample that all methods of a recipe share."""
    curvature = any(method.uses_curvature for method in methods.values())
    return Surgery(
        target.model, target.data, target.loss, recipe.settings(),
        curvature=curvature, progress=False, callback=callback,
    )  # fmt: skip


def check_fits(run: RunFolder, recipe: Recipe, target: Target, cells: int) -> None:
    """Refuse, before any work, what memory or disk cannot hold."""
    settings = recipe.settings()
    weights = find_weights(target.model, settings.include, settings.exclude)
    model = sum(tensor.nbytes for tensor in target.model.state_dict().values())
    run.check_disk(cells * (model + weights.size) + 9 * weights.size)
    if any(method.uses_curvature for method in recipe.make_methods().values()):
        device = settings.device or next(target.model.parameters()).device
        check_memory(weights, model, settings, torch.device(device))


def _save(cell: Cell, result: PruningResult, target: Target, surgery: Surgery) -> dict[str, float]:
    """Write a finished cell; its folder appears whole or not at all."""
    temporary = cell.folder.with_name(f".{cell.folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    result.save(temporary)
    scores = measure(target, result.model)
    after = surgery.weights.flatten(result.model).to(surgery.device)
    pruned = torch.cat([mask.reshape(-1) for mask in result.masks.values()])
    shown = histograms(surgery.weights, surgery.values, after, pruned)
    (temporary / "measured.json").write_text(json.dumps({"scores": scores, "histograms": shown}))
    temporary.replace(cell.folder)
    return scores


def _fingerprint(target: Target) -> str:
    digests = [f"{name} {digest(tensor)}" for name, tensor in target.model.state_dict().items()]
    return digest(torch.frombuffer(bytearray("\n".join(digests).encode()), dtype=torch.uint8))


def _same(run: RunFolder, name: str, value: Any, complaint: str) -> None:
    """Note a fact of a run when it starts, and hold a resumed run to it."""
    known = run.facts().get(name)
    if known is None:
        run.note(**{name: value})
    elif known != value:
        raise RunError(
            f"{run.path} cannot go on: {complaint} than when it was started. Restore what it was started with, or "
            "start a new run"
        )


def _same_examination(run: RunFolder, surgery: Surgery) -> tuple[str, ...]:
    """Hold a resumed run to the data it was started with; return a note where only the last digits differ."""
    sample = surgery.sample_loss
    found = {"loss": sample.at(surgery.values).loss(min(PROBED, sample.num_batches))}
    if surgery.quadratic is not None:
        found["curvature"] = surgery.quadratic.cost_of_step(surgery.values)
    known = run.facts().get("examined")
    if known is None:
        run.note(examined=found)
    elif not all(math.isclose(known[key], value, rel_tol=CLOSE) for key, value in found.items()):
        raise RunError(
            f"{run.path} cannot go on: the data or the loss are other than when it was started ({known} then, {found} "
            "now). Does the function give the same samples in the same order each time?"
        )
    elif known != found:
        note = "resumed with gradients that differ in their last digits from those it was started with"
        log.warning(note)
        return (note,)
    return ()


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Work with a number of threads: sums come out the same, to the last bit, only with the same number."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
