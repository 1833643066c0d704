"""Runs of one model make one record; those of different models are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from brainsurgeon import BrainsurgeonError
from brainsurgeon.app.report import read_record

Make = Callable[..., Path]


def note(folder: Path, **facts: object) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def test_several_runs_of_one_model_make_one_record(make_run: Make, tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", ["a", "b"], ["mp", "cbs"], [0.5, 0.9])
    two = make_run(tmp_path / "two", ["a", "b"], ["wf"], [0.5])
    both = read_record([one, two])
    assert both.labels == ["mp", "cbs", "wf"]
    assert both.title == "one and two"
    assert both.of_dense("accuracy") == 93.97
    assert "mp (one)" in read_record([one, make_run(tmp_path / "three", ["a", "b"], ["mp"], [0.5])]).labels


def test_runs_of_one_name_are_told_apart(make_run: Make, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / place / "run", ["a"], ["mp"], [0.5]) for place in "xy"]
    record = read_record(runs)
    assert record.labels == ["mp (1 run)", "mp (2 run)"]
    assert len({outcome.name for outcome in record.outcomes}) == 2


def test_other_layers_are_refused(make_run: Make, tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one", ["a"], ["mp"], [0.5]), make_run(tmp_path / "two", ["b"], ["mp"], [0.5])
    with pytest.raises(BrainsurgeonError, match=r"one and .*two cannot share a report: their layers are not the same"):
        read_record([one, two])


def test_other_weights_are_refused(make_run: Make, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, ["a"], ["mp"], [0.5]) for name in ("one", "two", "three")]
    note(runs[2], model="b" * 64)
    with pytest.raises(BrainsurgeonError, match=r"one and .*three cannot share.*the dense models have other weights"):
        read_record(runs)
    note(runs[2], model=None)  # an unfinished start has no fingerprint yet
    assert len(read_record(runs).outcomes) == 3


def test_what_is_no_run_is_refused(make_run: Make, tmp_path: Path) -> None:
    with pytest.raises(BrainsurgeonError, match="neither the folder of a run"):
        read_record([tmp_path])
    folder = make_run(tmp_path / "run", ["a"], ["mp"], [0.5])
    (folder / "result" / "result.json").unlink()
    with pytest.raises(BrainsurgeonError, match="no finished result yet"):
        read_record([folder])
