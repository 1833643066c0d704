"""Every metric against a loop by hand, however the samples are cut into batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.metrics import CLASSES, LABELS, METRICS, NUMBERS, Tally, check_metric

cuts = st.lists(st.integers(1, 29), max_size=4).map(sorted)
seeds = st.integers(0, 10_000)


def tallied(name: str, outputs: Tensor, targets: Tensor, at: list[int]) -> float:
    tally = Tally(METRICS[name])
    for some, others in zip(outputs.tensor_split(at), targets.tensor_split(at), strict=True):
        tally.add(some, others)
    return tally.value()


def f1(pairs: list[tuple[bool, bool]]) -> float | None:
    true = sum(a and b for a, b in pairs)
    wrong = sum(a != b for a, b in pairs)
    return 2 * true / (2 * true + wrong) if true + wrong else None


def iou(pairs: list[tuple[bool, bool]]) -> float | None:
    either = sum(a or b for a, b in pairs)
    return sum(a and b for a, b in pairs) / either if either else None


def mean(values: list[float | None]) -> float:
    found = [value for value in values if value is not None]
    return sum(found) / len(found)


def by_class(outputs: Tensor, targets: Tensor) -> list[list[tuple[bool, bool]]]:
    answers = [max(range(len(row)), key=row.__getitem__) for row in outputs.tolist()]
    return [[(a == c, t == c) for a, t in zip(answers, targets.tolist(), strict=True)] for c in range(outputs.shape[1])]


def by_label(outputs: Tensor, targets: Tensor) -> list[list[tuple[bool, bool]]]:
    columns = range(outputs.shape[1])
    return [[(float(o[k]) > 0, int(t[k]) == 1) for o, t in zip(outputs, targets, strict=True)] for k in columns]


@given(seeds, cuts)
@settings(max_examples=30, deadline=None)
def test_metrics_of_classes(seed: int, at: list[int]) -> None:
    rng = np.random.default_rng(seed)
    outputs, targets = torch.from_numpy(rng.normal(size=(30, 7))), torch.from_numpy(rng.integers(7, size=30))
    rows = list(zip(outputs.tolist(), targets.tolist(), strict=True))
    wanted = {
        "accuracy": 100 * sum(row[t] == max(row) for row, t in rows) / 30,
        "top-5": 100 * sum(sum(other > row[t] for other in row) < 5 for row, t in rows) / 30,
        "macro-f1": mean([f1(pairs) for pairs in by_class(outputs, targets)]),
        "iou": mean([iou(pairs) for pairs in by_class(outputs, targets)]),
        "perplexity": math.exp(-sum(row[t] - math.log(sum(map(math.exp, row))) for row, t in rows) / 30),
    }
    for name, value in wanted.items():
        assert tallied(name, outputs, targets, at) == pytest.approx(value, rel=1e-5), name
    two = tallied("f1", outputs[:, :2], targets % 2, at)
    assert two == pytest.approx(f1(by_class(outputs[:, :2], targets % 2)[1]) or 0.0)


@given(seeds, cuts, st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_metrics_of_labels(seed: int, at: list[int], labels: int) -> None:
    rng = np.random.default_rng(seed)
    outputs = torch.from_numpy(rng.normal(size=(30, labels)))
    targets = torch.from_numpy(rng.integers(2, size=(30, labels)))
    pairs = by_label(outputs, targets)
    pooled = [pair for column in pairs for pair in column]
    wanted = {
        "accuracy": 100 * mean([float(a == b) for a, b in pooled]),
        "f1": f1(pooled),
        "macro-f1": mean([f1(column) for column in pairs]),
        "iou": mean([iou(column) for column in pairs]),
    }
    for name, value in wanted.items():
        assert tallied(name, outputs, targets.double(), at) == pytest.approx(value), name


@given(seeds, cuts, st.booleans())
@settings(max_examples=30, deadline=None)
def test_metrics_of_numbers(seed: int, at: list[int], ties: bool) -> None:
    rng = np.random.default_rng(seed)
    targets = rng.normal(size=(30, 2)) * [1, 100] + [1000, 0]
    outputs = targets + rng.normal(size=(30, 2))
    if ties:
        outputs, targets = outputs.round(), targets.round()
    r2, ranked = [], []
    for f, y in zip(outputs.T, targets.T, strict=True):
        r2.append(1 - ((y - f) ** 2).sum() / ((y - y.mean()) ** 2).sum())
        ranks = [[(v > x).sum() + ((v == x).sum() + 1) / 2 for x in v] for v in (-f, -y)]
        ranked.append(np.corrcoef(ranks[0], ranks[1])[0, 1])
    given_ = torch.from_numpy(outputs), torch.from_numpy(targets)
    assert tallied("r2", *given_, at) == pytest.approx(np.mean(r2), rel=1e-6)
    assert tallied("spearman", *given_, at) == pytest.approx(np.mean(ranked))


@pytest.mark.parametrize("name", ["r2", "spearman"])
def test_what_constant_targets_leave_undefined_is_not_a_number(name: str) -> None:
    assert math.isnan(tallied(name, torch.rand(9, 1), torch.full((9, 1), 0.1), [4]))


def test_classes_that_do_not_occur_do_not_count() -> None:
    outputs, targets = torch.eye(4)[:2], torch.tensor([0, 1])
    assert tallied("macro-f1", outputs, targets, []) == tallied("iou", outputs, targets, []) == 1.0
    assert math.isnan(tallied("f1", -torch.ones(3, 1), torch.zeros(3, 1), []))


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("top-5", lambda: (torch.rand(4, 5), torch.zeros(4, dtype=torch.long)), "more than five classes.*have 5"),
        ("f1", lambda: (torch.rand(4, 3), torch.zeros(4, dtype=torch.long)), "f1 is of two classes.*macro-f1"),
    ],
)
def test_what_a_metric_cannot_be_taken_of_is_said(
    name: str, make: Callable[[], tuple[Tensor, Tensor]], words: str
) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        tallied(name, *make(), [])


def test_names_are_checked_and_every_metric_has_its_kinds() -> None:
    assert all(check_metric(name) == name for name in METRICS)
    assert all(set(metric.kinds) <= {CLASSES, LABELS, NUMBERS} for metric in METRICS.values())
    with pytest.raises(BrainsurgeonError, match="unknown score 'precision': give one of accuracy, top-5"):
        check_metric("precision")
