"""Killed at any moment, a run goes on to the very result it would have had."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from killing import SETTINGS, TARGET, execute_until, outcome, start
from safetensors.torch import load_file

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunError, RunFolder, execute
from brainsurgeon.app.runs import execute as execute_module
from brainsurgeon.app.runs import steps as steps_module
from brainsurgeon.app.target import load_target
from brainsurgeon.files.checkpoint import load_checkpoint


def records(run: RunFolder) -> list[dict]:
    """What the results say, but for how long it took."""
    found = [json.loads((cell / "result.json").read_text()) for cell in run.cells()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in found]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, float]:
    """A run that nobody disturbs, and how long it takes."""
    run = RunFolder.create(make_recipe(SETTINGS), tmp_path_factory.mktemp("runs") / "whole")
    start = time.perf_counter()
    execute(run)
    return run, time.perf_counter() - start


def test_a_run_killed_at_ten_random_moments_ends_bit_identical(
    tmp_path: Path, undisturbed: tuple[RunFolder, float]
) -> None:
    """SIGKILL, ten times, at moments spread over the run; what is on disk is always enough to go on."""
    expected, seconds = outcome(undisturbed[0]), undisturbed[1]
    run = RunFolder.create(make_recipe(SETTINGS), tmp_path / "killed")
    draw = random.Random(6)
    kills = 0
    while kills < 10:
        child = start(run)
        time.sleep(draw.uniform(0.0, max(0.3, 0.5 * seconds)))
        if child.poll() is not None:  # it was faster: begin again, so that every kill hits a run under way
            assert outcome(run) == expected
            run = RunFolder.create(make_recipe(SETTINGS), tmp_path / f"killed-{kills}")
            continue
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        kills += 1
    execute(run)
    assert outcome(run) == expected


@pytest.mark.parametrize("moment", range(1, 7))
def test_a_run_that_dies_right_after_a_step_goes_on_from_there(
    tmp_path: Path, undisturbed: tuple[RunFolder, float], monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """The moments that chance may miss: after each of the files that make up a step or a cell."""
    run = RunFolder.create(make_recipe(SETTINGS), tmp_path / "run")
    execute_until(run, steps_module, moment, monkeypatch)
    assert any(run.steps.iterdir())
    execute(run)
    assert outcome(run) == outcome(undisturbed[0])
    assert records(run) == records(undisturbed[0])


def test_finished_steps_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CBS-S has made the mask that CBS needs: its search runs once a sparsity."""
    from brainsurgeon.engine.selection import RecentredSearch

    searches = []
    improve = RecentredSearch.improve
    monkeypatch.setattr(RecentredSearch, "improve", lambda *a: searches.append(1) or improve(*a))
    execute(RunFolder.create(make_recipe(SETTINGS), tmp_path / "run"))
    assert len(searches) == 2


def test_a_finished_run_is_not_touched_by_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "mp", "sparsity": 0.5}), tmp_path / "run")
    cells = execute(run)
    before = {path: path.stat().st_mtime_ns for path in cells[0].folder.iterdir()}
    monkeypatch.setattr(execute_module, "load_target", None, raising=False)
    assert execute(run) == cells
    assert {path: path.stat().st_mtime_ns for path in cells[0].folder.iterdir()} == before
    assert not run.steps.exists()


def test_what_is_saved_is_what_was_pruned(tmp_path: Path) -> None:
    """The model in the folder loads, and is zero exactly where its masks say, with the exact count."""
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "cbs", "sparsity": 0.8}), tmp_path / "run")
    cell = execute(run)[0]
    model = load_checkpoint(load_target(TARGET).model, cell.folder / "model.safetensors")
    masks = load_file(cell.folder / "masks.safetensors")
    assert sum(int(mask.sum()) for mask in masks.values()) == cell.result()["pruned"] == 288
    for name, mask in masks.items():
        assert torch.equal(model.get_parameter(name) == 0, mask)


def test_a_run_does_not_go_on_with_another_model_or_other_data(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "cbs", "sparsity": 0.8}), tmp_path / "run")
    run.note(model="another")
    with pytest.raises(RunError, match="the model has other weights than when it was started"):
        execute(run)
    run.note(model=None)
    run.note(examined={"loss": 1.0, "curvature": 1.0})
    with pytest.raises(RunError, match="the data or the loss are other"):
        execute(run)


def test_last_digits_that_differ_are_said(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "mp", "sparsity": 0.8}), tmp_path / "run")
    cell = execute(run)[0]
    loss = run.facts()["examined"]["loss"]
    again = RunFolder.create(make_recipe({**SETTINGS, "method": "mp", "sparsity": 0.8}), tmp_path / "again")
    again.note(examined={"loss": loss * (1 + 1e-7)})
    assert "last digits" in execute(again)[0].result()["notes"][-1]
    assert not cell.result()["notes"]
