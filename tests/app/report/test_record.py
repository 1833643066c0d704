"""What is compared, and what is best."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from brainsurgeon.app.report import read_record
from brainsurgeon.app.report.record import is_small_better

Make = Callable[..., Path]


def test_accuracy_comes_first_and_the_sample_loss_last(make_run: Make, tmp_path: Path) -> None:
    scores = {"loss": 0.3, "bleu": 20.0, "accuracy": 90.0}
    record = read_record([make_run(tmp_path / "run", ["a"], ["mp", "cbs"], [0.5], scores=scores)])
    assert record.metrics == ["accuracy", "loss", "bleu", "sample loss"]
    assert record.metric == "accuracy"


def test_smaller_is_better_for_what_is_called_a_loss(make_run: Make, tmp_path: Path) -> None:
    record = read_record([make_run(tmp_path / "run", ["a"])])
    for metric, choose in (("accuracy", max), ("loss", min), ("sample loss", min)):
        values = {o.label: o.value(metric) for o in record.outcomes if o.sparsity == 0.9}
        best = record.best(0.9, metric)
        assert best is not None
        assert best.value(metric) == choose(values.values())
    assert is_small_better("Perplexity")
    assert not is_small_better("score")


def test_a_score_of_the_users_may_be_called_sample_loss(make_run: Make, tmp_path: Path) -> None:
    record = read_record([make_run(tmp_path / "run", ["a"], ["mp"], [0.5], scores={"sample loss": 7.0})])
    assert record.metrics == ["sample loss"]
    assert record.outcomes[0].value("sample loss") == 7.0


def test_a_score_that_is_not_finite_never_wins(make_run: Make, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ["a"], ["mp", "cbs"], [0.5])
    path = folder / "cells" / "cbs@0.5" / "measured.json"
    path.write_text('{"scores": {"accuracy": NaN, "loss": Infinity}}')
    record = read_record([folder])
    best = record.best(0.5)
    assert best is not None
    assert best.label == "mp"
    assert record.outcomes[1].diverged("accuracy")
    assert not record.outcomes[1].diverged("bleu")
