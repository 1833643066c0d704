"""`brainsurgeon prune` on a model of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from commands import QUICK, TARGET

from brainsurgeon.app.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_prune_leaves_everything_in_one_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", TARGET, "-m", "cbs", "-s", "0.8", "-o", "run", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "288 of 360 weights pruned" in out
    assert "accuracy:" in out
    names = {path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file()}
    assert {
        "recipe.yaml",
        "run.json",
        "log.txt",
        "report.html",
        "result/model.safetensors",
        "result/masks.safetensors",
        "result/result.json",
    } <= names
    assert "done" in Path("run/log.txt").read_text()


def test_the_recipe_that_is_written_back_makes_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(
        yaml.safe_dump({"target": TARGET, "arguments": {"hidden": 10}, "sparsity": 0.7, "num_gradients": 40})
    )
    assert main(["prune", "-r", "mine.yaml", "--method", "wf", "--set", "loss_samples=100", "-o", "a", "-q"]) == 0
    assert main(["prune", "-r", "a/recipe.yaml", "-o", "b", "-q"]) == 0
    first, second = (json.loads(Path(folder, "result/result.json").read_text()) for folder in "ab")
    for record in (first, second):
        record.pop("seconds")
    assert first == second
    assert first["size"] == 150
    written = yaml.safe_load(Path("a/recipe.yaml").read_text())
    assert (written["method"], written["loss_samples"]) == ("wf", 100)
    assert "damping" not in written  # what nobody gave is the method's own, and stands in the record
    assert first["settings"]["method"]["damping"] == 1e-4


@pytest.mark.parametrize("fisher", ["sampled", "exact"])
def test_the_labels_of_the_gradients_are_an_option_and_are_written_down(fisher: str) -> None:
    assert main(["prune", TARGET, "-m", "wf", "--fisher", fisher, "-o", "run", *QUICK]) == 0
    assert yaml.safe_load(Path("run/recipe.yaml").read_text())["fisher"] == fisher
    assert main(["prune", "-r", "run/recipe.yaml", "-o", "again", "-q"]) == 0
    first, again = (json.loads(Path(folder, "result/result.json").read_text()) for folder in ("run", "again"))
    assert first["settings"]["method"]["fisher"] == fisher
    assert {**first, "seconds": 0} == {**again, "seconds": 0}


def test_a_recipe_for_several_cells_is_not_pruned_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(f"target: {TARGET}\nsparsity: [0.5, 0.9]\n")
    assert main(["prune", "-r", "mine.yaml"]) == 2
    assert "compare" in capsys.readouterr().err
