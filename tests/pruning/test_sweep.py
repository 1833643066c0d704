"""Networks of several sparsities from one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trained import rings, trained

import brainsurgeon
from brainsurgeon.engine.selection import Magnitude
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import clock


@pytest.fixture(scope="module")
def swept() -> brainsurgeon.Sweep:
    return brainsurgeon.sweep(trained(), rings(0), [0.8, 0.5, 0.9], "gradual", max_gradients=15_000, progress=False)


def test_a_network_for_each_sparsity_for_the_gradients_of_one(swept: brainsurgeon.Sweep) -> None:
    assert [result.sparsity for result in swept.results] == [0.5, 0.8, 0.9]
    assert [result.pruned for result in swept.results] == [176, 282, 317]
    searched = swept.results[0].settings["path"]["searched"]
    assert sum(result.settings["sample_gradients"] for result in swept.results) + searched <= 15_000
    assert [result.settings["path"]["from"] for result in swept.results] == [0.0, 0.5, 0.8]
    assert all(result.settings["path"]["held_out_samples"] == 300 for result in swept.results)


def test_its_table(swept: brainsurgeon.Sweep) -> None:
    lines = swept.table().splitlines()
    assert lines[0].startswith("on 300 held-out samples, dense accuracy ")
    assert [line.split()[:2] for line in lines[2:]] == [["0.5", "176"], ["0.8", "70"], ["0.9", "35"]]
    assert all("%" in line for line in lines[2:])


def test_no_network_of_the_pareto_set_is_equalled_by_a_sparser_one() -> None:
    def result(sparsity: float, drop: float) -> Any:
        settings = {"path": {"drop": drop}}
        return brainsurgeon.PruningResult(torch.nn.Linear(1, 1), {}, (), sparsity, "mp", None, None, None, {}, settings)

    every = tuple(result(*pair) for pair in ((0.5, 0.01), (0.6, 0.0), (0.7, 0.02), (0.8, 0.02), (0.9, 0.3)))
    kept = brainsurgeon.Sweep(every).pareto()
    assert [one.sparsity for one in kept] == [0.6, 0.8, 0.9]


def test_a_saved_sweep_is_folders_and_an_index(swept: brainsurgeon.Sweep, tmp_path: Path) -> None:
    folder = swept.save(tmp_path / "swept")
    index = json.loads((folder / "sweep.json").read_text())
    assert [row["folder"] for row in index["networks"]] == ["gradual@0.5", "gradual@0.8", "gradual@0.9"]
    for row, result in zip(index["networks"], swept.results, strict=True):
        loaded = brainsurgeon.PruningResult.load(folder / row["folder"], trained())
        assert loaded.pruned == row["pruned"] == result.pruned


@pytest.mark.parametrize("sparsities", [[], 0.5, "0.5", [0.5, 1.0], [0.5, "many"]])
def test_sparsities_that_are_none(sparsities: Any) -> None:
    with pytest.raises(BrainsurgeonError):
        brainsurgeon.sweep(trained(), rings(0), sparsities, "mp")


@pytest.mark.parametrize("method", ["auto", "gradual", "staged", "layerwise"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda inputs, targets: [{"x": inputs, "labels": targets}], r"batch must be \(inputs, targets\), got a dict"),
        (lambda inputs, targets: (inputs.double(), targets), "float64 .*convert the data"),
        (lambda inputs, targets: (inputs[:, :3], targets), "failed on the first batch"),
    ],
)
def test_data_that_the_model_does_not_take_is_told_in_words(method: str, wrong: Any, words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        brainsurgeon.sweep(trained(), wrong(*rings(0, 100)), [0.5], method, progress=False)


def test_without_data_there_is_a_table_without_a_metric() -> None:
    found = brainsurgeon.sweep(trained(), None, [0.5, 0.9], "mp")
    assert [line.split() for line in found.table().splitlines()[1:]] == [["0.5", "176", "–"], ["0.9", "35", "–"]]
    assert len(found.pareto()) == 1


@pytest.mark.parametrize("name", ["../away", "a/b", "..", "/tmp/x"])
def test_a_method_of_any_name_is_saved_inside_the_folder(name: str, tmp_path: Path) -> None:
    method = brainsurgeon.OneShot(Magnitude(), name=name)
    found = brainsurgeon.sweep(trained(), None, [0.5, 0.9], method)
    folder = found.save(tmp_path / "swept")
    assert list(tmp_path.iterdir()) == [folder]
    rows = json.loads((folder / "sweep.json").read_text())["networks"]
    assert sorted(row["folder"] for row in rows) == sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_a_sweep_under_way_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured between two networks tells that work goes on."""
    monkeypatch.setattr(clock, "PULSE", 0.0)
    told: list[Any] = []
    brainsurgeon.sweep(trained(), rings(0), [0.5], "mp", callback=told.append)
    legs = [number for number, event in enumerate(told) if event.stage == "legs"]
    assert any(event.stage == "working" and event.values["step"] == "preparation" for event in told[: legs[0]])


@pytest.mark.parametrize("method", ["auto", "gradual"])
def test_every_network_of_a_sweep_has_the_pattern(method: str) -> None:
    settings: dict[str, Any] = {"pattern": "2:4", "max_gradients": 1000, "progress": False, "include": "2.*"}
    found = brainsurgeon.sweep(trained(), rings(0), [0.5], method, **settings)
    assert bool((found.results[0].masks["2.weight"].reshape(-1, 4).sum(1) == 2).all())


@pytest.mark.parametrize("method", ["auto", "gradual", "staged"])
def test_every_network_is_there_though_time_was_up_at_once(method: str) -> None:
    found = brainsurgeon.sweep(trained(), rings(0), [0.5, 0.9], method, max_seconds=1e-6, progress=False)
    assert [result.pruned for result in found.results] == [176, 317]
    goal = brainsurgeon.Goal(drop=0.9, most=0.8)
    result = brainsurgeon.prune(trained(), rings(0), method=method, goal=goal, max_seconds=1e-6, progress=False)
    assert sum(int((p == 0).sum()) for p in result.model.parameters() if p.dim() > 1) == result.pruned
