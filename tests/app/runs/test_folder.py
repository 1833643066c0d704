"""Run folders: each run its own, written by one process, refused before work where it cannot be kept."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunError, RunFolder, execute
from brainsurgeon.app.target import load_target
from brainsurgeon.network.memory import DoesNotFitError
from brainsurgeon.pruning.fitting import needs_of
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.surgery import Surgery

TARGET = f"{Path(__file__).with_name('own_model.py')}:build"
RECIPE = {"target": TARGET, "method": "cbs", "sparsity": 0.8, "num_gradients": 50, "loss_samples": 100}


def test_runs_that_start_at_once_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [RunFolder.create(make_recipe(RECIPE)) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    assert all(run.path.parent == Path("runs") for run in runs)


def test_a_folder_that_holds_something_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"not empty: give a new folder$"):
        RunFolder.create(make_recipe(RECIPE), tmp_path)
    RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    with pytest.raises(RunError, match="--resume"):
        RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["notes.txt"]


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    with run.locked(), pytest.raises(RunError, match="worked on by another process"):
        execute(run)
    execute(run)


def test_an_unwritable_place_is_noticed_before_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write to .*--output"):
        RunFolder.create(make_recipe(RECIPE), tmp_path / "file" / "run")


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


def test_a_folder_that_is_no_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not the folder of a run"):
        RunFolder.open(tmp_path)


def test_the_number_of_threads_is_that_of_the_recipe_and_is_put_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    seen = []
    run = RunFolder.create(make_recipe({**RECIPE, "threads": before + 1}), tmp_path / "run")
    execute(run, lambda event: seen.append(torch.get_num_threads()))
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before
