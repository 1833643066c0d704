"""The finished cells of one run, or of several runs of one model, read from their folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from brainsurgeon.app.report.felt import read_survey
from brainsurgeon.app.report.record import Outcome, Record
from brainsurgeon.app.report.saved import Facts, Measured, Result, read
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.writing import safe_names
from brainsurgeon.pruning.sweep import INDEX


def read_record(folders: Sequence[Path]) -> Record:
    """Read runs of one model, or single results that were saved by the library."""
    parts = [_read(Path(folder)) for folder in folders]
    _check_same_model(folders, parts)
    record = parts[0] if len(parts) == 1 else _merged(parts)
    names = safe_names(f"{o.label}-{o.sparsity:g}" for o in record.outcomes)
    named = tuple(replace(o, name=name) for o, name in zip(record.outcomes, names, strict=True))
    return replace(record, outcomes=named)


def _merged(parts: Sequence[Record]) -> Record:
    """Put runs together; methods that several have in common are told apart by the run's name, or its number."""
    labels = [label for part in parts for label in part.labels]
    shared = len(set(labels)) < len(labels)
    unlike = len({part.title for part in parts}) == len(parts)
    titles = [part.title if unlike else f"{number} {part.title}" for number, part in enumerate(parts, 1)]
    outcomes = tuple(
        replace(outcome, label=f"{outcome.label} ({title})") if shared else outcome
        for title, part in zip(titles, parts, strict=True)
        for outcome in part.outcomes
    )
    recipes = "\n".join(f"# {title}\n{part.recipe}" for title, part in zip(titles, parts, strict=True) if part.recipe)
    dense = {key: value for part in reversed(parts) for key, value in part.facts.dense.items()}
    facts = parts[0].facts.model_copy(update={"dense": dense})
    felt = next((part.felt for part in parts if part.felt is not None), None)
    return Record(" and ".join(titles), outcomes, facts, recipes, parts[0].target, felt)


def _check_same_model(folders: Sequence[Path], parts: Sequence[Record]) -> None:
    """Refuse to put results of different models into one table."""
    known = [part.facts.model for part in parts]
    first = next((number for number, model in enumerate(known) if model), 0)
    for number, part in enumerate(parts):
        if any(_layers(outcome) != _layers(parts[0].outcomes[0]) for outcome in part.outcomes):
            raise _different(folders[0], folders[number], "their layers are not the same")
        if known[number] and known[number] != known[first]:
            raise _different(folders[first], folders[number], "the dense models have other weights")


def _different(one: Path, other: Path, why: str) -> BrainsurgeonError:
    return BrainsurgeonError(
        f"{one} and {other} cannot share a report: {why}. Write a report of each, or give runs of one model"
    )


def _layers(outcome: Outcome) -> list[tuple[str, tuple[int, ...], int]]:
    return [(layer.name, layer.shape, layer.size) for layer in outcome.result.layers]


def _read(folder: Path) -> Record:
    title = folder.resolve().name
    if (folder / "recipe.yaml").is_file():
        from brainsurgeon.app.runs import RunFolder

        run = RunFolder.open(folder)
        outcomes = tuple(_outcome(cell) for cell in run.cells())
        if not outcomes:
            raise BrainsurgeonError(f"{folder} has no finished result yet: go on with it (--resume {folder})")
        facts = read(Facts, folder / "run.json") if (folder / "run.json").is_file() else Facts()
        recipe, target = (folder / "recipe.yaml").read_text(), Path(run.recipe.target).name
        return Record(title, outcomes, facts, recipe, target, read_survey(folder))
    if (folder / INDEX).is_file():  # a sweep that the library saved
        return Record(title, tuple(_outcome(file.parent) for file in sorted(folder.glob("*/result.json"))))
    if (folder / "result.json").is_file():
        return Record(title, (_outcome(folder),), felt=read_survey(folder))
    raise BrainsurgeonError(f"{folder} is neither the folder of a run (recipe.yaml) nor of a result (result.json)")


def _outcome(cell: Path) -> Outcome:
    result = read(Result, cell / "result.json")
    path = cell / "measured.json"
    return Outcome(result.method, cell, result, read(Measured, path) if path.is_file() else Measured())
