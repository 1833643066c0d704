"""What is checked before work: that it fits, and that a resumed run is the run it was."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import TARGET
from killing import SETTINGS
from run_recipes import RECIPE

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunError, RunFolder, execute
from brainsurgeon.app.runs.checks import check_same_data
from brainsurgeon.app.target import load_target
from brainsurgeon.network.memory import DoesNotFitError
from brainsurgeon.pruning.fitting import needs_of
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.surgery import Surgery


def test_a_run_does_not_go_on_with_another_model_or_other_data(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "cbs", "sparsity": 0.8}), tmp_path / "run")
    run.note(model="another")
    with pytest.raises(RunError, match="the model has other weights than when it was started"):
        execute(run)
    run.note(model=None)
    run.note(data="other")
    with pytest.raises(RunError, match="the data come in another order, or are other data"):
        execute(run)


def test_a_full_disk_is_noticed_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    run = RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 10**6))
    with pytest.raises(DoesNotFitError, match="MiB are free there: make room"):
        execute(run)
    assert not run.steps.exists()


def needed(method: str, **settings: object) -> int:
    """What a run is foretold to take."""
    target = load_target(TARGET)
    surgery = Surgery(target.model, target.data, target.loss, progress=False)
    return sum(needs_of(make_method(method, settings), surgery).values())


@pytest.mark.parametrize(
    ("rows", "dtype", "remedies"),
    [(100, torch.bfloat16, ["num_gradients=", "bfloat16"]), (40, torch.float32, ["num_gradients=40 or fewer"])],
)
def test_too_little_memory_is_said_before_work_with_what_would_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, dtype: torch.dtype, remedies: list[str]
) -> None:
    free = needed("cbs", num_gradients=rows, dtype=dtype, loss_samples=RECIPE["loss_samples"])
    monkeypatch.setattr("brainsurgeon.pruning.fitting.available_bytes", lambda device: free)
    run = RunFolder.create(make_recipe({**RECIPE, "num_gradients": 100}), tmp_path / "run")
    with pytest.raises(DoesNotFitError) as refused:
        execute(run)
    said = str(refused.value).partition("What would fit: ")[2]
    assert all(remedy in said for remedy in remedies)
    fitting = int(said.partition("num_gradients=")[2].split()[0])  # and it does
    execute(RunFolder.create(make_recipe({**RECIPE, "num_gradients": fitting}), tmp_path / "fits"))


def test_a_method_without_gradients_needs_no_memory_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = needed("mp")
    monkeypatch.setattr("brainsurgeon.pruning.fitting.available_bytes", lambda device: free)
    execute(RunFolder.create(make_recipe({"target": TARGET, "method": "mp", "sparsity": 0.8}), tmp_path / "run"))
    with pytest.raises(DoesNotFitError):
        execute(RunFolder.create(make_recipe(RECIPE), tmp_path / "other"))


def test_a_change_of_any_sample_in_memory_is_noticed(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    target = load_target(TARGET)
    data = (torch.zeros(20_000, 2), torch.zeros(20_000, dtype=torch.long))
    check_same_data(run, replace(target, data=data), 0)
    check_same_data(run, replace(target, data=(data[0].clone(), data[1])), 0)
    data[0][19_999, 1] = 1.0
    with pytest.raises(RunError, match="or are other data"):
        check_same_data(run, replace(target, data=data), 0)
