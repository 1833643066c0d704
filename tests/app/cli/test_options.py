"""What a command is given reaches the recipe, whichever command it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from brainsurgeon.app.cli import compare, prune
from brainsurgeon.app.cli import inspect as inspection
from brainsurgeon.app.cli import options as o

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
