"""Metrics by name, as sums over batches: nothing but Spearman's keeps the outputs of a data set.

| name | of | value |
|---|---|---|
| accuracy | classes, labels | per cent of the answers that are right |
| top-5 | classes | per cent of the answers whose class is among the five highest outputs |
| f1 | labels (pooled), two classes (of the second) | 2tp/(2tp + fp + fn) |
| macro-f1 | classes, labels | the mean of F1 over those that occur |
| iou | classes, labels | the mean of tp/(tp + fp + fn) over those that occur |
| perplexity | classes | exp of the mean −log p(y) |
| r2 | numbers | 1 − Σ(y − f)²/Σ(y − ȳ)², the mean over outputs |
| spearman | numbers | the correlation of ranks, ties at their mean rank, the mean over outputs |

Answers are M×C scores with M classes, M×L logits with M×L labels of 0 and 1, or M×D numbers with as many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError

CLASSES, LABELS, NUMBERS = "classes", "labels", "numbers"
"""What targets are: one class of several, zeros and ones, or real numbers."""


@dataclass(frozen=True)
class Metric:
    """What a batch adds (outputs, targets → tensor), and the value of the sum; `joined` parts are put in line instead.

    The value is not a number where the metric is undefined. `less` says that less of it is better; `scale` is its
    value for perfect answers, and None where there is no such value or it is no yardstick.
    """

    kinds: tuple[str, ...]
    part: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor], float]
    joined: bool = False
    less: bool = False
    scale: float | None = 1.0


class Tally:
    """One metric over batches."""

    def __init__(self, metric: Metric):
        self.metric = metric
        self._parts: list[Tensor] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Take a batch in."""
        part = self.metric.part(outputs, targets)
        if self.metric.joined or not self._parts:
            self._parts.append(part.cpu() if self.metric.joined else part)
        else:
            self._parts[0] = self._parts[0] + part

    def value(self) -> float:
        """Return the metric of all batches, not a number where it is undefined."""
        return self.metric.value(torch.cat(self._parts)) if self._parts else math.nan


def _is_classes(outputs: Tensor, targets: Tensor) -> bool:
    return targets.dim() == 1 and outputs.dim() == 2 and not targets.is_floating_point()


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    hits = outputs.argmax(1) == targets if _is_classes(outputs, targets) else (outputs > 0) == (targets > 0.5)
    return torch.tensor([[int(hits.sum()), hits.numel()]])


def _among_five(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.shape[1] <= 5:
        raise BrainsurgeonError(f"top-5 needs more than five classes, the outputs have {outputs.shape[1]}")
    hits = (outputs.topk(5, 1).indices == targets.unsqueeze(1)).any(1)
    return torch.tensor([[int(hits.sum()), hits.numel()]])


def _share(sums: Tensor) -> float:
    right, all_ = sums.sum(0).tolist()
    return 100 * right / all_ if all_ else math.nan


def _outcomes(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return true positives, false positives and false negatives of every class or label, 1×C×3."""
    if _is_classes(outputs, targets):
        answers, size = outputs.argmax(1), outputs.shape[1]
        true = torch.bincount(targets[answers == targets], minlength=size)
        given, wanted = torch.bincount(answers, minlength=size), torch.bincount(targets, minlength=size)
    else:
        found, there = outputs > 0, targets > 0.5
        true, given, wanted = (found & there).sum(0), found.sum(0), there.sum(0)
    return torch.stack([true, given - true, wanted - true], 1).unsqueeze(0)


def _outcomes_of_two(outputs: Tensor, targets: Tensor) -> Tensor:
    if not _is_classes(outputs, targets):
        return _outcomes(outputs, targets).sum(1, keepdim=True)
    if outputs.shape[1] != 2:
        raise BrainsurgeonError(f'f1 is of two classes, the outputs have {outputs.shape[1]}: ask for "macro-f1"')
    return _outcomes(outputs, targets)[:, 1:]


def _mean_over_occurring(both: float) -> Callable[[Tensor], float]:
    """Return the mean of (1 + both)·tp/((1 + both)·tp + fp + fn): F1 with both = 1, the IoU with 0."""

    def value(outcomes: Tensor) -> float:
        true, wrong = outcomes[0, :, 0].double(), outcomes[0, :, 1:].sum(1).double()
        occurs = true + wrong > 0
        found = (1 + both) * true[occurs] / ((1 + both) * true[occurs] + wrong[occurs])
        return float(found.mean()) if bool(occurs.any()) else math.nan

    return value


def _surprise(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.tensor([[float(F.cross_entropy(outputs.float(), targets, reduction="sum")), len(targets)]]).double()


def _perplexity(sums: Tensor) -> float:
    total, count = sums.sum(0).tolist()
    return math.exp(total / count) if count else math.nan


def _moments(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return n, Σy, Σy², Σ(y − f)² of every output, 1×4×D."""
    outputs, targets = outputs.double(), targets.double()
    count = torch.ones_like(targets).sum(0)
    return torch.stack([count, targets.sum(0), targets.square().sum(0), (targets - outputs).square().sum(0)])[None]


def _r2(moments: Tensor) -> float:
    count, first, second, residual = moments[0]
    spread = second - first.square() / count
    if bool((spread <= 1e-12 * second).any()):  # a constant target has no variance to explain
        return math.nan
    return float((1 - residual / spread).mean())


def _in_line(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.stack([outputs.double(), targets.double()], 1)


def _ranks(column: Tensor) -> Tensor:
    _, place, counts = column.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[place]


def _spearman(pairs: Tensor) -> float:
    found = []
    for column in pairs.unbind(2):
        outputs, targets = column.unbind(1)
        ranks = torch.stack([_ranks(outputs), _ranks(targets)]).double()
        ranks -= ranks.mean(1, keepdim=True)
        size = ranks.norm(dim=1).prod()
        found.append(float((ranks[0] * ranks[1]).sum() / size) if size else math.nan)
    return sum(found) / len(found)


METRICS: dict[str, Metric] = {
    "accuracy": Metric((CLASSES, LABELS), _right, _share, scale=100.0),
    "top-5": Metric((CLASSES,), _among_five, _share, scale=100.0),
    "f1": Metric((LABELS, CLASSES), _outcomes_of_two, _mean_over_occurring(1.0)),
    "macro-f1": Metric((CLASSES, LABELS), _outcomes, _mean_over_occurring(1.0)),
    "iou": Metric((CLASSES, LABELS), _outcomes, _mean_over_occurring(0.0)),
    "perplexity": Metric((CLASSES,), _surprise, _perplexity, less=True, scale=None),
    "r2": Metric((NUMBERS,), _moments, _r2),
    "spearman": Metric((NUMBERS,), _in_line, _spearman, joined=True),
}


def check_metric(name: object) -> str:
    """Return the name of a metric, or refuse it with those that there are."""
    if not isinstance(name, str) or name not in METRICS:
        raise BrainsurgeonError(f"unknown score {name!r}: give one of {', '.join(METRICS)}, or a function")
    return name
