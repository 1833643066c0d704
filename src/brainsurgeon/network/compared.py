"""Two models on the same samples: how much of a metric is lost, and how sure that is.

The loss of a metric, its *drop*, is told as a share: of the metric's value for perfect answers where it has one
(accuracy 94.0 → 93.1 is a drop of 0.009), else of the dense model's value (perplexity 20 → 21 is a drop of 0.05, and so
is a score of the user's own that goes from 20 to 19).

Its interval is found from pairs, since both models answer the same samples. Of right and wrong answers it is Agresti
and Min's: with b samples that only the dense model has right, c that only the pruned one has, and n in all, let
b′ = b + ½, c′ = c + ½, n′ = n + 2 and

    d ± z·√(b′ + c′ − (b′ − c′)²/n′)/n′,   d = (b′ − c′)/n′.

Of any other metric it is the paired bootstrap: n samples are drawn with replacement, the same ones for both models, and
the drop is found of them; the interval holds the middle 95% of many such drops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.answers import Answers, answer, has_targets
from brainsurgeon.network.evaluate import ask, suggested, takes_model
from brainsurgeon.network.loss import LossLike
from brainsurgeon.network.metrics import METRICS, Metric, check_metric
from brainsurgeon.network.modes import evaluated
from brainsurgeon.samples.batches import Batch, batch_size, concatenate, moved, regroup

LOSS = "loss"
"""The name of the mean loss, where a metric is asked for."""
Z = 1.959963984540054
"""Of a normal variable 95% lie within so many deviations."""
DRAWS = 1000
UNITS = 100
"""Where single samples are not told apart, the bootstrap draws from about so many groups of them."""
TOGETHER = 64
"""Samples that a model answers at once."""


@dataclass(frozen=True)
class Scored:
    """A metric of one model on some samples: `of(chosen)` is its value on some of its `units`, drawn again or not.

    `hits` holds one right or wrong answer a sample, where the metric is the share of right ones. Without units there is
    a value, and no interval.
    """

    value: float
    units: int = 0
    of: Callable[[Tensor], float] = lambda chosen: math.nan
    hits: Tensor | None = None


def usual_metric(model: nn.Module, batch: Batch, loss: LossLike) -> str:
    """Return the metric that the loss suggests: accuracy, perplexity, R², or the loss itself."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with torch.no_grad(), evaluated(model):
        return next(iter(suggested(answer(model, loss, moved(batch, device)))), LOSS)


def direction(metric: Any) -> tuple[bool, float | None]:
    """Say whether less of a metric is better, and what its value is for perfect answers, None where none is known."""
    if metric == LOSS:
        return True, None
    if isinstance(metric, str):
        return METRICS[check_metric(metric)].less, METRICS[metric].scale
    return False, None


def drop(dense: float, pruned: float, less: bool, scale: float | None) -> float:
    """Return what is lost of a metric, as a share."""
    lost = pruned - dense if less else dense - pruned
    whole = abs(dense) if scale is None else scale
    return lost / whole if whole else math.copysign(math.inf, lost) if lost else 0.0


def interval(
    dense: Scored, pruned: Scored, less: bool, scale: float | None, generator: torch.Generator, draws: int = DRAWS
) -> tuple[float, float] | None:
    """Return the 95% interval of the drop, None where there is nothing to tell it from."""
    if dense.hits is not None and pruned.hits is not None:
        lost, won = (int((a & ~b).sum()) for a, b in ((dense.hits, pruned.hits), (pruned.hits, dense.hits)))
        return paired_shares(lost, won, len(dense.hits))
    if not dense.units:
        return None
    found = []
    for _ in range(draws):
        chosen = torch.randint(dense.units, (dense.units,), generator=generator)
        found.append(drop(dense.of(chosen), pruned.of(chosen), less, scale))
    kept = sorted(value for value in found if not math.isnan(value))
    if not kept:
        return None
    return kept[int(0.025 * len(kept))], kept[min(len(kept) - 1, int(0.975 * len(kept)))]


def paired_shares(lost: int, won: int, count: int) -> tuple[float, float]:
    """Return Agresti and Min's interval of the difference of two shares of the same samples."""
    b, c, n = lost + 0.5, won + 0.5, count + 2
    middle, half = (b - c) / n, Z * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return max(middle - half, -1.0), min(middle + half, 1.0)


def scored(model: nn.Module, batches: Iterable[Batch], metric: Any, loss: LossLike) -> Scored:
    """Score a model on samples, in evaluation mode, sample by sample where that can be had.

    `metric` is a name, "loss", or a function of the user's own as `brainsurgeon.evaluate` takes it.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with torch.no_grad(), evaluated(model):
        if callable(metric) and takes_model(metric):
            return Scored(_number(ask(metric, model)))
        count = sum(map(batch_size, batches := list(batches)))
        size = min(TOGETHER, -(-count // UNITS)) if metric == LOSS else TOGETHER
        answers = []
        for batch in regroup(batches, size):
            pulse()
            found = answer(model, loss, moved(batch, device), outputs_wanted=metric != LOSS)
            counts = metric != LOSS or has_targets(batch, loss)
            answers.append((found, batch_size(batch) if counts else 0))
    if metric == LOSS:
        return _of_losses(answers)
    if callable(metric):
        return _of_function(metric, answers)
    return _of_metric(METRICS[check_metric(metric)], str(metric), answers)


def _number(found: dict[str, float]) -> float:
    if len(found) != 1:
        raise BrainsurgeonError(f"a goal is of one number, and the metric gave {len(found)}: {found!r:.80}")
    return next(iter(found.values()))


def _of_losses(answers: list[tuple[Answers, int]]) -> Scored:
    if any(found.loss is None for found, _ in answers):
        raise BrainsurgeonError("there is no loss to measure: give prune a loss, or name another metric")
    rows = [[float(found.loss or 0.0) * size if size else 0.0, size] for found, size in answers]
    sums = torch.tensor(rows, dtype=torch.float64)

    def of(chosen: Tensor) -> float:
        total, count = sums[chosen].sum(0).tolist()
        return float(total / count) if count else math.nan

    return Scored(of(torch.arange(len(sums))), len(sums), of)


def _of_function(function: Callable[..., Any], answers: list[tuple[Answers, int]]) -> Scored:
    pairs = [(found.outputs, found.targets) for found, _ in answers]
    if not all(isinstance(part, Tensor) for pair in pairs for part in pair):
        raise BrainsurgeonError(
            "a metric of outputs and targets needs batches (inputs, targets) and a model whose output is one tensor: "
            "give a function of the model instead"
        )
    outputs, targets = concatenate(pairs)

    def of(chosen: Tensor) -> float:
        chosen = chosen.to(outputs.device)
        return _number(ask(function, outputs[chosen], targets[chosen]))

    return Scored(of(torch.arange(len(outputs))), len(outputs), of)


def _of_metric(metric: Metric, name: str, answers: list[tuple[Answers, int]]) -> Scored:
    parts = torch.stack([part.cpu() for found, size in answers for part in _parts(metric, name, found, size)])

    def of(chosen: Tensor) -> float:
        picked = parts[chosen]
        return metric.value(picked.flatten(0, 1) if metric.joined else picked.sum(0))

    value = of(torch.arange(len(parts)))
    if math.isnan(value):
        raise BrainsurgeonError(
            f"{name} is undefined on the held-out samples: all targets are the same, none counts, or an output is not "
            "a number"
        )
    single = metric.scale == 100.0 and bool((parts[..., 1] == 1).all())  # one right or wrong answer a sample
    return Scored(value, len(parts), of, parts[..., 0].flatten() > 0 if single else None)


def _parts(metric: Metric, name: str, found: Answers, size: int) -> list[Tensor]:
    """Return what each sample adds to a metric; a sample may have several answers, as a sequence of tokens has."""
    if not isinstance(found.outputs, Tensor) or not isinstance(found.targets, Tensor):
        found.arranged(metric.kinds, name)  # which says what is missing
    outputs, targets = (tensor.reshape(size, -1, *tensor.shape[1:]) for tensor in (found.outputs, found.targets))
    return [
        metric.part(*Answers(a, b, found.kind, None).arranged(metric.kinds, name))
        for a, b in zip(outputs, targets, strict=True)
    ]
