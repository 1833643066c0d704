"""What a report is made of: the finished cells of one run or of several, read from their folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brainsurgeon.errors import BrainsurgeonError

SMALLER_IS_BETTER = ("loss", "error", "perplexity")
SAMPLE_LOSS = "sample loss"


@dataclass(frozen=True)
class Outcome:
    """One method at one sparsity: its result, and what was measured of it."""

    label: str
    folder: Path
    result: dict[str, Any]
    scores: dict[str, float] = field(default_factory=dict)
    histograms: list[dict[str, Any]] = field(default_factory=list)

    @property
    def sparsity(self) -> float:
        """The share of the weights that was asked for."""
        return self.result["sparsity"]

    @property
    def seconds(self) -> float:
        """All the time it took, the gradients that it shares included."""
        return sum(self.result["seconds"].values())

    def value(self, metric: str) -> float | None:
        """Return a score, or the loss on the sample; None where it is not known."""
        return self.result["loss_after"] if metric == SAMPLE_LOSS else self.scores.get(metric)


@dataclass(frozen=True)
class Record:
    """All outcomes that a report shows."""

    title: str
    outcomes: list[Outcome]
    dense: dict[str, float] = field(default_factory=dict)
    recipe: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    target: str = ""

    @property
    def metric(self) -> str:
        """What is shown first: accuracy, else the first score of the user's, else the loss on the sample."""
        known = self.outcomes[0].scores
        return "accuracy" if "accuracy" in known else next(iter(known), SAMPLE_LOSS)

    @property
    def metrics(self) -> list[str]:
        """Everything that was measured of all outcomes, the main metric first."""
        others = [key for key in self.outcomes[0].scores if key != self.metric]
        return [self.metric, *others, *([SAMPLE_LOSS] if self.metric != SAMPLE_LOSS else [])]

    @property
    def labels(self) -> list[str]:
        """The methods, in order."""
        return list(dict.fromkeys(outcome.label for outcome in self.outcomes))

    @property
    def sparsities(self) -> list[float]:
        """The sparsities, rising."""
        return sorted({outcome.sparsity for outcome in self.outcomes})

    def of_dense(self, metric: str) -> float | None:
        """Return what the dense model has of a metric."""
        return self.outcomes[0].result["loss_before"] if metric == SAMPLE_LOSS else self.dense.get(metric)

    def at(self, label: str, sparsity: float) -> Outcome | None:
        """Return the outcome of a method at a sparsity, if there is one."""
        return next((o for o in self.outcomes if o.label == label and o.sparsity == sparsity), None)

    def best(self, sparsity: float, metric: str | None = None) -> Outcome | None:
        """Return the best outcome at a sparsity."""
        metric = metric or self.metric
        found = [o for o in self.outcomes if o.sparsity == sparsity and o.value(metric) is not None]
        sign = 1 if is_small_better(metric) else -1
        return min(found, key=lambda o: sign * (o.value(metric) or 0.0), default=None)


def is_small_better(metric: str) -> bool:
    """Say whether a metric is a kind of loss, by its name."""
    return any(word in metric.lower() for word in SMALLER_IS_BETTER)


def unit(metric: str) -> str:
    """Return the sign that follows a number of this metric."""
    return "%" if metric == "accuracy" else ""


def read_record(folders: Sequence[Path]) -> Record:
    """Read runs, or single results that were saved by the library."""
    parts = [_read(folder) for folder in folders]
    if len(parts) == 1:
        return parts[0]
    several = len({label for part in parts for label in part.labels}) < sum(len(part.labels) for part in parts)
    outcomes = [
        Outcome(f"{o.label} ({part.title})" if several else o.label, o.folder, o.result, o.scores, o.histograms)
        for part in parts
        for o in part.outcomes
    ]
    recipes = "\n".join(f"# {part.title}\n{part.recipe}" for part in parts)
    return Record(" and ".join(part.title for part in parts), outcomes, parts[0].dense, recipes, parts[0].versions)


def _read(folder: Path) -> Record:
    folder = Path(folder)
    if (folder / "recipe.yaml").is_file():
        from brainsurgeon.app.runs import RunFolder

        run = RunFolder.open(folder)
        facts = run.facts()
        outcomes = [_outcome(cell) for cell in run.cells()]
        if not outcomes:
            raise BrainsurgeonError(f"{folder} has no finished result yet: go on with it (--resume {folder})")
        text = (folder / "recipe.yaml").read_text()
        known, dense, target = facts.get("versions", {}), facts.get("dense", {}), Path(run.recipe.target).name
        return Record(folder.resolve().name, outcomes, dense, text, known, target)
    if (folder / "result.json").is_file():
        return Record(folder.resolve().name, [_outcome(folder)])
    raise BrainsurgeonError(f"{folder} is neither the folder of a run (recipe.yaml) nor of a result (result.json)")


def _outcome(cell: Path) -> Outcome:
    result = json.loads((cell / "result.json").read_text())
    path = cell / "measured.json"
    measured = json.loads(path.read_text()) if path.is_file() else {"scores": {}, "histograms": []}
    return Outcome(result["method"], cell, result, measured["scores"], measured["histograms"])
