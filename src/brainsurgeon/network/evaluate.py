"""What a model is worth on data: metrics by name, a function of the user's own, or what the loss suggests."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.answers import Answers, answer, has_targets
from brainsurgeon.network.checks import in_words
from brainsurgeon.network.loss import LossLike
from brainsurgeon.network.metrics import CLASSES, LABELS, METRICS, NUMBERS, Tally, check_metric
from brainsurgeon.network.modes import evaluated
from brainsurgeon.samples.batches import Batch, as_batches, batch_size, moved

Score = str | Sequence[str] | Callable[..., Any] | None


def evaluate(model: nn.Module, data: Any, score: Score = None, loss: LossLike | None = None) -> dict[str, float]:
    """Score a model on data, in evaluation mode: numbers by name, with the mean `loss` where one is given.

    Args:
        model: any module.
        data: samples with their targets, in any of the forms that `brainsurgeon.prune` takes.
        score: a name or several: "accuracy" and "top-5" (per cent), "f1", "macro-f1", "iou", "r2", "perplexity",
            "spearman"; a function of the model, or of all outputs and targets, that returns a number or numbers by
            name; or None for what the loss suggests: accuracy of classes, accuracy and F1 of labels (bce_with_logits),
            R² of numbers (mse, l1, huber), the perplexity of a language model.
        loss: as for `brainsurgeon.prune`; it tells what the targets are, where their shapes do not.
    """
    if score is None and loss is None:
        raise BrainsurgeonError('there is nothing to measure: give score="accuracy" (or another), or a loss')
    names = metric_names(score)
    with torch.no_grad(), evaluated(model):
        if names is None and score is not None and takes_model(score):
            return ask(score, model)
        measured = _Measured(names, None if names is not None else score)
        for batch in _batches(data, model):
            with in_words(model, batch):
                answers = answer(model, loss, batch, outputs_wanted=score is not None)
            measured.add(answers, batch_size(batch), has_targets(batch, loss))
        return measured.values()


class _Measured:
    """The sums of one evaluation."""

    def __init__(self, names: list[str] | None, function: Any):
        self.names, self.function = names, function
        self.tallies = {name: Tally(METRICS[name]) for name in names or ()}
        self.losses, self.samples, self.counted = 0.0, 0, 0
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.has_loss = True

    def add(self, answers: Answers, size: int, counts: bool) -> None:
        """Take in a batch; the loss of one whose targets are all left out is no number, and does not count."""
        if self.names is None and self.function is None and not self.samples:
            self.tallies = {name: Tally(METRICS[name]) for name in suggested(answers)}
        for name, tally in list(self.tallies.items()):
            try:
                tally.add(*answers.arranged(tally.metric.kinds, name))
            except BrainsurgeonError:
                if self.names is not None:
                    raise
                del self.tallies[name]  # the loss suggested it, and later targets are of another kind
        if self.function is not None:
            self.kept.append((answers.outputs, answers.targets))
        self.has_loss = self.has_loss and answers.loss is not None
        self.samples += size
        if counts and answers.loss is not None:
            self.losses += float(answers.loss) * size
            self.counted += size

    def values(self) -> dict[str, float]:
        if not self.samples:
            raise BrainsurgeonError("the data is empty (a generator can be read once only: give a list or a loader)")
        found = {name: tally.value() for name, tally in self.tallies.items()}
        undefined = [name for name, value in found.items() if math.isnan(value)]
        if undefined and self.names is not None:
            raise BrainsurgeonError(
                f"{undefined[0]} is undefined on these samples: all targets are the same, none counts, or an output "
                "is not a number"
            )
        found = {name: value for name, value in found.items() if name not in undefined}
        if self.function is not None:
            found |= ask(self.function, *self._joined())
        return found | ({"loss": self.losses / self.counted} if self.has_loss and self.counted else {})

    def _joined(self) -> list[Tensor]:
        if not all(isinstance(part, Tensor) for pair in self.kept for part in pair):
            raise BrainsurgeonError(
                "a score of outputs and targets needs batches (inputs, targets) and a model whose output is one "
                "tensor: give score as a function of the model instead"
            )
        return [torch.cat(list(parts)) for parts in zip(*self.kept, strict=True)]


def metric_names(score: Score) -> list[str] | None:
    """Return the metrics that a score names, checked; None where it names none."""
    if score is None or (callable(score) and not isinstance(score, str)):
        return None
    if isinstance(score, str):
        return [check_metric(score)]
    if not isinstance(score, Sequence) or not score:
        raise BrainsurgeonError(f"score must be a name, several, or a function, got {score!r}")
    return [check_metric(name) for name in score]


def takes_model(score: Any) -> bool:
    """Say whether a function scores a model, by its one parameter, rather than outputs and targets."""
    try:
        parameters = inspect.signature(score).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) < 2


def ask(score: Any, *given: Any) -> dict[str, float]:
    """Return what a user's own score gives, as numbers by name; say that it failed where it does."""
    try:
        found = score(*given)
    except BrainsurgeonError:
        raise
    except Exception as error:  # a user's function may raise anything
        name = getattr(score, "__name__", type(score).__name__)
        raise BrainsurgeonError(f"the score {name} failed ({type(error).__name__}: {error}): mend it") from error
    return named(found)


def named(found: Any) -> dict[str, float]:
    """Return what a user's own score gave as numbers by name."""
    numbers = found if isinstance(found, Mapping) else {"score": found}
    try:
        return {str(name): float(value) for name, value in numbers.items()}
    except (TypeError, ValueError) as error:
        raise BrainsurgeonError(f"a score must return a number, or numbers by name, got {found!r}") from error


def suggested(answers: Answers) -> list[str]:
    """Return the metrics that are usual for what the targets are known to be."""
    if answers.language:
        return ["perplexity"]
    if answers.kind == LABELS:
        several = answers.outputs.dim() > 1 and answers.outputs.shape[1] > 1
        return ["accuracy", "f1", *(["macro-f1"] if several else [])]
    return {CLASSES: ["accuracy"], NUMBERS: ["r2"]}.get(str(answers.kind), [])


def _batches(data: Any, model: nn.Module) -> Iterator[Batch]:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    for batch in as_batches(data, torch.Generator().manual_seed(0)):
        yield moved(batch, device)
