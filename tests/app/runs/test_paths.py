"""Goals and sweeps in a run's folder: a killed one goes on after its last finished leg, to the same networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from killing import TARGET, outcome

from brainsurgeon.app.cli import main
from brainsurgeon.app.recipe import RecipeError, make_recipe
from brainsurgeon.app.report import read_record
from brainsurgeon.app.runs import RunFolder, execute
from brainsurgeon.events import Event

COMMON = {"target": TARGET, "method": "gradual", "max_gradients": 3000, "threads": 1}
GOAL = COMMON | {"goal": {"drop": "5%", "metric": "accuracy", "most": 0.9, "resolution": 0.5}}
SWEEP = COMMON | {"sweep": True, "sparsity": [0.8, 0.5, 0.6]}


def killed_after(legs: int) -> Any:
    """A callback that ends the run when so many legs are done."""

    def notice(event: Event) -> None:
        if event.stage == "legs" and event.done == legs:
            raise KeyboardInterrupt

    return notice


@pytest.mark.parametrize("settings", [GOAL, SWEEP], ids=["goal", "sweep"])
def test_a_killed_path_goes_on_to_the_same_networks(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = RunFolder.create(make_recipe(settings), tmp_path / "whole")
    execute(whole)
    run = RunFolder.create(make_recipe(settings), tmp_path / "killed")
    for legs in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            execute(run, killed_after(legs))
    begun: list[Event] = []
    execute(run, begun.append)
    assert outcome(run) == outcome(whole)
    assert not run.steps.exists()
    kept = [json.loads((cell / "result.json").read_text())["settings"] for cell in run.cells()]
    again = [json.loads((cell / "result.json").read_text())["settings"] for cell in whole.cells()]
    assert [one["sample_gradients"] for one in kept] == [one["sample_gradients"] for one in again]


def test_a_recipe_with_a_goal_is_written_back_and_read_again(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe(GOAL), tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").recipe == run.recipe
    assert run.recipe.sparsity is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"goal": {"drop": 2}}, "drop is a share"),
        ({"goal": {"drip": 0.1}}, "unknown key 'drip'; a goal has: metric, drop"),
        ({"goal": 0.1}, "goal: 0.1 is none"),
        ({"goal": {"drop": 0.1}, "sparsity": 0.5}, "not two of them"),
        ({"goal": {"drop": 0.1}, "sweep": True}, "not two of them"),
    ],
)
def test_recipes_of_goals_that_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        make_recipe(COMMON | given)


def test_a_sweep_that_the_library_saved_has_a_report(tmp_path: Path) -> None:
    import brainsurgeon
    from brainsurgeon.app.target import load_target

    target = load_target(TARGET)
    brainsurgeon.sweep(target.model, target.data, [0.5, 0.7], "mp").save(tmp_path / "swept")
    record = read_record([tmp_path / "swept"])
    assert (record.labels, record.sparsities) == (["mp"], [0.5, 0.7])
    assert main(["report", str(tmp_path / "swept"), "-o", str(tmp_path / "page")]) == 0
