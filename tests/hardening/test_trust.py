"""A foreign run folder or recipe runs no code; recipes of odd kinds are refused in words."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from brainsurgeon.app import trust
from brainsurgeon.app.cli import main
from brainsurgeon.app.recipe import RecipeError, make_recipe, read_recipe, read_value
from brainsurgeon.app.target import TargetError, load_target
from brainsurgeon.errors import BrainsurgeonError

MODEL = """
import torch, pathlib
{extra}
def build():
    pathlib.Path({marker!r}).write_text("ran")
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 6, generator=generator), torch.randint(3, (40,), generator=generator)
    torch.manual_seed(0)
    return torch.nn.Linear(6, 3), (x, y)
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def model_file(folder: Path, extra: str = "") -> tuple[Path, Path]:
    marker = folder / "marker"
    path = folder / "mine.py"
    path.write_text(MODEL.format(marker=str(marker), extra=extra))
    return path, marker


def run(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


def test_ones_own_run_is_read_and_a_foreign_one_is_not(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, marker = model_file(tmp_path)
    assert run("prune", f"{path}:build", "-m", "mp", "-s", "0.5", "-o", tmp_path / "run", "-q") == 0
    commands = [
        ("prune", "--resume", tmp_path / "run", "-q"),
        ("evaluate", tmp_path / "run", "--seconds", "0"),
        ("export", tmp_path / "run", "masks", tmp_path / "masks"),
        ("finetune", tmp_path / "run", "-o", tmp_path / "tuned", "--epochs", "1", "-q"),
    ]
    for command in commands:
        assert run(*command) == 0, capsys.readouterr().err
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    shutil.rmtree(tmp_path / "run" / "result")
    for name in ("masks", "tuned"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    marker.unlink()
    capsys.readouterr()
    for command in commands:
        assert run(*command) == 1
        assert "give --trust" in " ".join(capsys.readouterr().err.split())
        assert not marker.exists()
    assert run("prune", "--resume", tmp_path / "run", "-q", "--trust") == 0
    assert marker.exists()
    assert run("evaluate", tmp_path / "run", "--seconds", "0", "--trust") == 0
    assert run("evaluate", tmp_path / "run", "--seconds", "0", "-t", f"{path}:build") == 0
    marker.unlink()
    assert run("report", tmp_path / "run") == 0
    assert not marker.exists()


def test_a_recipe_that_was_changed_is_no_longer_ones_own(tmp_path: Path, state: Path) -> None:
    path, marker = model_file(tmp_path)
    assert run("prune", f"{path}:build", "-m", "mp", "-s", "0.5", "-o", tmp_path / "run", "-q") == 0
    recipe = tmp_path / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("build", "other"))
    marker.unlink()
    assert run("evaluate", tmp_path / "run") == 1
    assert not marker.exists()


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


def test_a_recipe_that_was_changed_after_it_was_signed_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "recipe.yaml").write_text("target: demo\n")
    trust.sign(tmp_path)
    assert trust.is_ours(tmp_path)
    (tmp_path / "recipe.yaml").write_text("target: other.py:build\n")
    assert not trust.is_ours(tmp_path)
