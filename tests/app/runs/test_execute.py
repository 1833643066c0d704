"""Killed at any moment, a run goes on to the very result it would have had."""

from __future__ import annotations

import errno
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from killing import SETTINGS, outcome, start

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunError, RunFolder, execute
from brainsurgeon.app.runs import execute as execute_module
from brainsurgeon.app.runs.cells import Cell


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
def test_a_run_that_dies_right_after_a_cell_goes_on_with_the_next(
    tmp_path: Path, undisturbed: tuple[RunFolder, float], monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """A finished cell is the unit: what comes out of the others does not depend on what was done before them."""
    run = RunFolder.create(make_recipe(SETTINGS), tmp_path / "run")
    save, saved = Cell.save, 0

    def dying(*arguments: Any) -> Any:
        nonlocal saved
        found = save(*arguments)
        saved += 1
        if saved == moment:
            raise SystemExit
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Cell, "save", dying)
        with pytest.raises(SystemExit):
            execute(run)
    assert len(run.cells()) == moment
    execute(run)
    assert outcome(run) == outcome(undisturbed[0])
    assert records(run) == records(undisturbed[0])


def test_a_finished_run_is_not_touched_by_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "mp", "sparsity": 0.5}), tmp_path / "run")
    cells = execute(run)
    before = {path: path.stat().st_mtime_ns for path in cells[0].folder.iterdir()}
    monkeypatch.setattr(execute_module, "load_target", None, raising=False)
    assert execute(run) == cells
    assert {path: path.stat().st_mtime_ns for path in cells[0].folder.iterdir()} == before
    assert not run.steps.exists()


@pytest.mark.parametrize(("method", "moment"), [("cbs", 1), ("cbs", 2), ("staged", 3), ("auto", 1), ("auto", 3)])
def test_a_disk_that_fills_up_is_told_in_words_and_nothing_is_lost(
    tmp_path: Path, method: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"staged": {"schedule": 2, "max_gradients": 500}, "auto": {"max_gradients": 500}}.get(method, {})
    base = {key: value for key, value in SETTINGS.items() if key not in ("num_gradients", "loss_samples")}
    settings = {**base, "method": method, "sparsity": 0.8, **extra}
    whole = RunFolder.create(make_recipe(settings), tmp_path / "whole")
    execute(whole)
    run = RunFolder.create(make_recipe(settings), tmp_path / "run")
    written, write = 0, Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        nonlocal written
        written += path.name.endswith(".safetensors.tmp")
        if written >= moment:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(RunError, match=r"is full\. What was finished is there: make room, and go on with --resume"):
            execute(run)
    execute(run)
    assert outcome(run) == outcome(whole)
