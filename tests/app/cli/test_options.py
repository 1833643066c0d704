"""What a command is given reaches the recipe, whichever command it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brainsurgeon.app.cli import compare, prune
from brainsurgeon.app.cli import inspect as inspection
from brainsurgeon.app.cli import options as o
from brainsurgeon.app.recipe import Recipe, RecipeError

OF_A_RUN = {"recipe", "settings", "output", "resume", "trust", "track", "quiet", "timed", "sensitivity", "measured"}


@pytest.mark.parametrize("command", [prune.prune, compare.compare, inspection.inspect], ids=lambda f: f.__name__)
def test_every_option_but_those_of_the_run_is_a_key_of_the_recipe(command: Callable[..., None]) -> None:
    """A parameter that no recipe knows would be dropped without a word."""
    names = set(inspect.signature(command).parameters)
    given = o.keys_given({name: name for name in names})
    arguments, goal = given.pop("arguments", {}), given.pop("goal", {})
    assert {*given.values(), *goal.values(), *arguments} == names - OF_A_RUN
    assert given["schedule"] == "stages"
    assert given["method"] in {"method", "methods"}


def test_other_names_in_a_command_are_left_out() -> None:
    assert o.keys_given({"target": "a.py:b", "start": len, "quiet": True, "seed": None}) == {
        "target": "a.py:b",
        "seed": None,
    }


def gathered(text: str, given: dict[str, Any] | None = None, settings: list[str] | None = None) -> Recipe:
    Path("elsewhere").mkdir(exist_ok=True)
    Path("elsewhere/recipe.yaml").write_text(text)
    return o.gather(Path("elsewhere/recipe.yaml"), settings, given or {})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


LANGUAGE = "target: hf:llama\narguments: {text: a.txt, window: 32, test_text: b.txt}\n"


def test_arguments_of_a_target_join_those_of_a_recipe(here: Path) -> None:
    """Files that are named on the command line lie here, those of a recipe beside it."""
    recipe = gathered(LANGUAGE, {"arguments": {"text": "c.txt"}})
    found = recipe.arguments or {}
    assert found["window"] == 32
    assert found["text"] == str(here / "c.txt")
    assert found["test_text"] == str(here / "elsewhere" / "b.txt")
    again = gathered(LANGUAGE, {"arguments": {"window": 16}}).arguments or {}
    assert (again["window"], again["text"]) == (16, str(here / "elsewhere" / "a.txt"))
    named = gathered(LANGUAGE, {"target": "hf:other"})
    assert named.target == f"hf:{here / 'other'}"
    assert (named.arguments or {})["window"] == 32


def test_files_that_are_set_lie_here(here: Path) -> None:
    recipe = gathered("target: demo\n", None, ["checkpoint=trained.pt", "target=model.py:build"])
    assert recipe.checkpoint == str(here / "trained.pt")
    assert recipe.target == f"{here / 'model.py'}:build"


@pytest.mark.usefixtures("here")
def test_options_are_settings_by_name() -> None:
    for text, settings in (("target: demo\noptions: 3\n", None), ("target: demo\n", ["options=3"])):
        with pytest.raises(RecipeError, match="options holds a selection's own settings by name, got 3"):
            gathered(text, None, settings)
    assert gathered("target: demo\nmethod: cbs-s\n", None, ["num_buckets=7"]).options == {"num_buckets": 7}


def test_a_budget_of_layers_has_no_usual_sparsities() -> None:
    assert o.usual_sparsities(None, ["uniform"], [0.5, 0.9]) == {"sparsity": [0.5, 0.9]}
    assert o.usual_sparsities(None, ["fc1=0.5"], [0.5, 0.9]) == {}
    assert o.usual_sparsities([0.7], ["fc1=0.5"], [0.5, 0.9]) == {"sparsity": [0.7]}
