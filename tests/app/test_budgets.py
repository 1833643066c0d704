"""Budgets as the command line takes them: words, files, targets; what is wrong is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from brainsurgeon.app.budgets import read_budget, read_budgets
from brainsurgeon.app.cli import main
from brainsurgeon.errors import BrainsurgeonError

MODEL = (
    "import torch\nfrom torch import nn\n\n\n"
    "def model():\n"
    "    made = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 4))\n"
    "    return made, (torch.randn(40, 6), torch.randint(4, (40,)))\n"
)


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(MODEL)
    return f"{tmp_path}/own.py:model"


def test_targets_come_before_what_a_file_says(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.json"
    one.write_text("# mine\nbudget:\n  fc1.weight: 0.5\n  fc2.weight: 1\nsparsity: 0.9\n")
    two.write_text(json.dumps({"fc2.weight": 0.1, "fc3.weight": 0.0}))
    assert read_budget(one) == {"fc1.weight": 0.5, "fc2.weight": 1.0}
    found = read_budgets([str(one), str(two), "fc3*=0.95, conv1=5e-1", "fc1.weight=0"])
    assert list(found.items()) == [  # type: ignore[union-attr]
        ("fc3*", 0.95),
        ("conv1", 0.5),
        ("fc1.weight", 0.0),
        ("fc2.weight", 1.0),
        ("fc3.weight", 0.0),
    ]
    assert read_budgets(["uniform"]) == "uniform"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fc1.weight: 1.5", "the sparsity of 'fc1.weight' must be a number from 0 to 1, got 1.5"),
        ("fc1.weight: yes", "must be a number from 0 to 1, got True"),
        ("fc1.weight: .nan", "must be a number from 0 to 1, got nan"),
        ("- 0.5", "must hold layers and their sparsities"),
        ("", "must hold layers and their sparsities"),
        ("a: &x 0.5\nb: *x", "takes no alias"),
    ],
)
def test_a_bad_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(BrainsurgeonError, match=words):
        read_budget(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["missing.yaml"], "is no file that is there and holds no pair"),
        (["fc=2"], "must be a number from 0 to 1, got 2"),
        (["=0.5"], "holds no pair"),
        (["uniform", "fc=0.5"], "stands alone"),
    ],
)
def test_bad_words_are_refused(given: list[str], words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        read_budgets(given)


def test_a_budget_for_every_layer_says_the_sparsity(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "budget.yaml"
    file.write_text(yaml.safe_dump({"0.weight": 0.5, "2.weight": 0.25}))
    run = tmp_path / "run"
    assert main(["prune", target, "-m", "mp", "--budget", str(file), "--budget", "2=0.5", "-o", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "mp at 0.5: 50 of 100 weights pruned" in shown
    assert "the budget comes to 50 of 100 weights (0.5000)" in shown
    assert yaml.safe_load((run / "recipe.yaml").read_text())["budget"] == {"2": 0.5, "0.weight": 0.5, "2.weight": 0.25}
    again = tmp_path / "again"  # the recipe holds what the file said
    file.unlink()
    assert main(["prune", "-r", str(run / "recipe.yaml"), "-o", str(again), "-q"]) == 0
    assert main(["inspect", target, "-m", "mp", "--no-time", "--budget", "*=0.3"]) == 0
    assert "To prune: 30 of 100 weights (0.3)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "*=0.5", "-s", "0.9"], "comes to 50 of 100 weights (0.5000), while the sparsity asks for 90"),
        (["--budget", "fc9=0.5"], "'fc9' matches no layer; the layers are: 0.weight, 2.weight"),
        (["--budget", "0=1.5"], "the sparsity of '0' must be a number from 0 to 1, got 1.5"),
    ],
)
def test_what_does_not_go_together_is_explained(
    options: list[str], words: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prune", target, "-m", "mp", "-q", "-o", str(tmp_path / "run"), *options]) == 1
    assert words in capsys.readouterr().err


def test_a_budget_for_some_layers_leaves_the_rest_to_the_others(target: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["prune", target, "-m", "mp", "-q", "-s", "0.6", "--budget", "2=0.25", "-o", str(run)]) == 0
    layers = json.loads((run / "result" / "result.json").read_text())["layers"]
    assert [layer["pruned"] for layer in layers] == [50, 10]
