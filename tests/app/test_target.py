"""A user's own function: found, called under a fixed seed, and checked in words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from brainsurgeon.app.scores import measure
from brainsurgeon.app.target import Target, TargetError, load_target
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.checkpoint import save_checkpoint

MODEL = """
import torch
from torch import nn

def pair():
    return nn.Linear(4, 3), (torch.randn(20, 4), torch.randint(3, (20,)))

def triple(width=3):
    return nn.Linear(4, width), (torch.randn(20, 4), torch.randn(20, width)), "mse"

def named():
    model, data = pair()
    return {"model": model, "data": data, "test": data}

def scored():
    return {"model": nn.Linear(4, 3), "score": lambda model: 7}

def broken():
    raise KeyError("cifar")

def misnamed():
    return {"modell": nn.Linear(4, 3)}

def nothing():
    return 3

constant = 5
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own_model_of_test_target.py"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize("form", ["file", "module"])
def test_a_function_is_found_in_a_file_or_a_module(file: Path, form: str) -> None:
    place = str(file) if form == "file" else file.stem
    target = load_target(f"{place}:pair")
    assert target.loss == "cross_entropy"
    assert target.data[0].shape == (20, 4)
    assert load_target(f"{place}:triple", {"width": 5}).model.out_features == 5


def test_what_a_function_draws_depends_on_the_seed_alone(file: Path) -> None:
    first, again, other = (load_target(f"{file}:pair", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.model.weight, again.model.weight)
    assert torch.equal(first.data[0], again.data[0])
    assert not torch.equal(first.model.weight, other.model.weight)


def test_a_checkpoint_goes_into_the_model(file: Path, tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    save_checkpoint(model, tmp_path / "w.safetensors")
    loaded = load_target(f"{file}:pair", checkpoint=tmp_path / "w.safetensors").model
    assert torch.equal(loaded.weight, model.weight)


def test_the_demonstration_is_a_target() -> None:
    target = load_target("demo")
    assert measure(target)["accuracy"] > 90


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pears", "Did you mean 'pair'"),
        ("broken", "line 19: KeyError: 'cifar'"),
        ("misnamed", "unknown 'modell'. Did you mean 'model'"),
        ("nothing", "it returned a int"),
        ("constant", "must be a function"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(file: Path, name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load_target(f"{file}:{name}")


@pytest.mark.parametrize("spec", ["model.py", "no_such_file.py:build", "no_such_module:build", ":build", "a:"])
def test_a_bad_name_is_refused(spec: str) -> None:
    with pytest.raises(TargetError):
        load_target(spec)


def test_accuracy_and_loss_are_those_of_plain_loops(file: Path) -> None:
    target = load_target(f"{file}:named")
    inputs, targets = target.test
    outputs = target.model(inputs).detach()
    found = measure(target)
    assert found["accuracy"] == pytest.approx(100 * float((outputs.argmax(1) == targets).double().mean()))
    assert found["loss"] == pytest.approx(float(nn.functional.cross_entropy(outputs, targets)), rel=1e-5)


def test_a_score_of_ones_own_is_taken(file: Path) -> None:
    assert measure(load_target(f"{file}:scored")) == {"score": 7.0}
    assert measure(Target(nn.Linear(2, 2), None)) == {}
    with pytest.raises(BrainsurgeonError, match="must return a number"):
        measure(Target(nn.Linear(2, 2), None, score=lambda model: "good"))


def test_answers_that_the_loss_ignores_do_not_count() -> None:
    target = Target(nn.Identity(), None, test=[(torch.eye(4), torch.tensor([0, -100, 2, -100]))])
    assert measure(target)["accuracy"] == 100
    target = Target(nn.Identity(), None, test=[(torch.eye(4), torch.tensor([0, -100, 3, -100]))])
    assert measure(target)["accuracy"] == 50


def test_a_score_may_be_a_name_or_several() -> None:
    test = (torch.eye(8), torch.arange(8))
    assert measure(Target(nn.Identity(), None, test=test, score="top-5"))["top-5"] == 100
    assert list(measure(Target(nn.Identity(), None, test=test, score=["iou", "accuracy"]))) == [
        "iou",
        "accuracy",
        "loss",
    ]
    with pytest.raises(BrainsurgeonError, match="score 'iou' is measured on held-out data: give the target test="):
        measure(Target(nn.Identity(), None, score="iou"))


def test_an_unknown_score_is_refused_when_the_target_is_made(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "from torch import nn\n\ndef build():\n    return {'model': nn.Linear(2, 2), 'score': 'acc'}\n"
    )
    with pytest.raises(BrainsurgeonError, match="unknown score 'acc': give one of accuracy"):
        load_target(f"{tmp_path / 'made.py'}:build")
