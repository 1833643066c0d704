"""What a model is worth on held-out data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small import network, samples
from torch import nn

from brainsurgeon.app.scores import measure
from brainsurgeon.app.target import Target, load_target
from brainsurgeon.errors import BrainsurgeonError


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


def test_scoring_leaves_every_module_in_its_mode() -> None:
    model = network().train()
    model[0].eval()
    assert measure(Target(model, None, test=samples()))["accuracy"] > 0
    assert [module.training for module in model] == [False, True, True]
