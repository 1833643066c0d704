"""Runs in stages go on from the last finished stage, to the very same weights."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from killing import SETTINGS, execute_until, outcome, start

from brainsurgeon.app.recipe import RecipeError, make_recipe
from brainsurgeon.app.runs import RunError, RunFolder, execute
from brainsurgeon.app.runs import store as store_module

BASE = {key: value for key, value in SETTINGS.items() if key not in ("num_gradients", "loss_samples")}
STAGED = {**BASE, "method": ["staged", "mp"], "sparsity": 0.8, "schedule": {"stages": 3, "refits": 2, "trainings": 1}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = RunFolder.create(make_recipe(STAGED), tmp_path_factory.mktemp("runs") / "whole")
    execute(run)
    return run


@pytest.mark.parametrize("moment", range(1, 12))
def test_a_run_that_dies_after_a_stage_goes_on_from_there(
    tmp_path: Path, undisturbed: RunFolder, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Five stages and a training, and five stages: killed after any of them, weights and record are the same."""
    run = RunFolder.create(make_recipe(STAGED), tmp_path / "run")
    execute_until(run, store_module, moment, monkeypatch)
    seen: list[int] = []
    cells = execute(run, lambda event: seen.append(event.done) if event.stage == "stages" else None)
    assert len(seen) == 11 - moment
    assert outcome(run) == outcome(undisturbed)
    for cell, twin in zip(cells, execute(undisturbed), strict=True):
        mine, other = cell.result(), twin.result()
        for record in (mine, other):
            record.pop("seconds")
            record["settings"].pop("resumed_after_stage", None)
        assert mine == other


def test_a_run_in_stages_killed_at_random_moments_ends_bit_identical(tmp_path: Path, undisturbed: RunFolder) -> None:
    """SIGKILL, four times in one run: each time what is on disk is enough to go on."""
    run = RunFolder.create(make_recipe(STAGED), tmp_path / "killed")
    draw = random.Random(7)
    for _ in range(4):
        child = start(run)
        time.sleep(draw.uniform(0.05, 0.5))
        child.kill()
        child.wait()
    execute(run)
    assert outcome(run) == outcome(undisturbed)


def test_a_staged_run_does_not_go_on_with_other_data(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe(STAGED), tmp_path / "run")
    run.note(data="other")
    with pytest.raises(RunError, match="the data come in another order"):
        execute(run)


def test_a_schedule_is_a_number_or_its_parts() -> None:
    number = make_recipe({**STAGED, "schedule": 4}).make_methods()["staged"].schedule
    assert (number.stages, number.refits) == (4, 4)
    parts = make_recipe({**STAGED, "schedule": {"stages": 3, "kind": "linear"}}).make_methods()["mp"].schedule
    assert (parts.stages, parts.kind) == (3, "linear")
    with pytest.raises(RecipeError, match="unknown key 'stage'"):
        make_recipe({**STAGED, "schedule": {"stage": 3}})
