"""What a report is made of: outcomes, and what there is to compare among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from brainsurgeon.app.report.felt import File
from brainsurgeon.app.report.saved import Facts, Measured, Result

SMALLER_IS_BETTER = ("loss", "error", "perplexity")
SAMPLE_LOSS = "sample loss"


@dataclass(frozen=True)
class Outcome:
    """One method at one sparsity: its result, and what was measured of it; `name` is its own among all outcomes."""

    label: str
    folder: Path
    result: Result
    measured: Measured
    name: str = ""

    @property
    def sparsity(self) -> float:
        """The share of the weights that was asked for."""
        return self.result.sparsity

    @property
    def seconds(self) -> float:
        """All the time it took, the gradients that it shares included."""
        return sum(self.result.seconds.values())

    @property
    def bytes_on_disk(self) -> int | None:
        """The size of the model's file, where it is there."""
        return next((file.stat().st_size for file in self.folder.glob("model*.safetensors")), None)

    def value(self, metric: str) -> float | None:
        """Return a score, or the loss on the sample; None where it is not known, or not finite."""
        return self.measured.scores.get(metric, self.result.loss_after if metric == SAMPLE_LOSS else None)

    def diverged(self, metric: str) -> bool:
        """Say whether a metric was measured and is not finite."""
        lost = metric == SAMPLE_LOSS and self.result.loss_before is not None
        return self.value(metric) is None and (lost or metric in self.measured.scores)


@dataclass(frozen=True)
class Record:
    """All outcomes that a report shows."""

    title: str
    outcomes: tuple[Outcome, ...]
    facts: Facts = field(default_factory=Facts)
    recipe: str = ""
    target: str = ""
    felt: File | None = None

    @property
    def metrics(self) -> list[str]:
        """Everything that was measured: accuracy first, else the first score of the user's, else the sample loss."""
        scores = dict.fromkeys(key for outcome in self.outcomes for key in outcome.measured.scores)
        lost = any(outcome.value(SAMPLE_LOSS) is not None for outcome in self.outcomes)
        found = sorted(scores, key=lambda metric: metric != "accuracy")
        return list(dict.fromkeys([*found, *([SAMPLE_LOSS] if lost or not found else [])]))

    @property
    def metric(self) -> str:
        """What is shown first."""
        return self.metrics[0]

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
        loss = self.outcomes[0].result.loss_before if metric == SAMPLE_LOSS else None
        return self.facts.dense.get(metric, loss)

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
    return "%" if metric in ("accuracy", "top-5") else ""
