"""Targets that are no functions of the user, and recipes of odd kinds, are refused in words."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from foreign import model_file, run

from brainsurgeon.app.recipe import RecipeError, make_recipe, read_recipe, read_value
from brainsurgeon.app.target import TargetError, load_target
from brainsurgeon.errors import BrainsurgeonError


@pytest.mark.parametrize(
    "spec",
    ["os:system", "subprocess:run", "builtins:eval", "shutil:rmtree", "importlib:import_module", "os.path:join"],
)
def test_pythons_own_library_is_no_target(tmp_path: Path, state: Path, spec: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"target": spec, "arguments": {"command": "touch ran"}, "method": "mp"}))
    assert run("prune", "--recipe", recipe, "-q") == 1
    assert not (tmp_path / "ran").exists()
    with pytest.raises(TargetError, match="Python's own library"):
        load_target(spec, {"command": "touch ran"})


def test_a_function_that_a_file_only_imports_from_there_is_none_either(tmp_path: Path) -> None:
    path, _ = model_file(tmp_path, "from os import system")
    with pytest.raises(TargetError, match="Python's own library"):
        load_target(f"{path}:system", {"command": "true"})


def test_a_target_that_ends_the_process_is_an_error(tmp_path: Path, state: Path) -> None:
    path = tmp_path / "quits.py"
    path.write_text("import sys\ndef build():\n    sys.exit(0)\n")
    with pytest.raises(TargetError, match="SystemExit"):
        load_target(f"{path}:build")
    assert run("prune", f"{path}:build", "-q", "-o", tmp_path / "run") == 1
    path.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(TargetError, match="SystemExit"):
        load_target(f"{path}:build")
    (tmp_path / "quitting_module.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(TargetError, match="SystemExit"):
        load_target("quitting_module:build")
    assert "quitting_module" not in sys.modules


@pytest.mark.parametrize(
    "values",
    [
        {"sparsity": []},
        {"method": []},
        {"sparsity": [0.5, "x"]},
        {"threads": 100_000},
        {"threads": 0},
        {"seed": 2**70},
        {"budget": []},
        {"budget": {1: 2}},
        {"include": [[]]},
        {"options": []},
        {"options": {"num_draws": "x"}},
        {"schedule": {"stages": []}},
        {"dtype": []},
        {"num_gradients": "many"},
        {"target": 3},
        {"arguments": [1]},
    ],
)
def test_wrong_kinds_in_a_recipe_are_refused_in_words(values: dict[str, Any]) -> None:
    with pytest.raises(BrainsurgeonError):
        make_recipe({"target": "demo", **values})


def test_deep_aliased_and_large_recipes_are_refused_at_once(tmp_path: Path) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + k)}: &{chr(98 + k)} [{','.join(['*' + chr(97 + k)] * 9)}]\n" for k in range(8)
    )
    started = time.perf_counter()
    for name, text in {"bomb.yaml": bomb, "deep.yaml": "[" * 50_000, "deep.toml": "a = " + "[" * 50_000}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(RecipeError):
            read_recipe(tmp_path / name)
    (tmp_path / "large.yaml").write_text("# " + "x" * (1 << 20))
    with pytest.raises(RecipeError, match="bytes; a recipe has"):
        read_recipe(tmp_path / "large.yaml")
    with pytest.raises(RecipeError, match="not valid YAML"):
        read_value("[1, 2")
    assert time.perf_counter() - started < 5


def test_a_recipe_that_is_written_can_be_read_back() -> None:
    methods = ["mp", "wf"]
    recipe = make_recipe({"target": "demo", "method": methods, "include": methods, "exclude": methods})
    assert read_value(recipe.to_yaml())["exclude"] == methods
