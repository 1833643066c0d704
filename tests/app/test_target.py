"""A user's own function: found, called under a fixed seed, and checked in words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from brainsurgeon.app.scores import measure
from brainsurgeon.app.target import TargetError, load_target
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.checkpoint import save_checkpoint


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


def test_an_unknown_score_is_refused_when_the_target_is_made(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "from torch import nn\n\ndef build():\n    return {'model': nn.Linear(2, 2), 'score': 'acc'}\n"
    )
    with pytest.raises(BrainsurgeonError, match="unknown score 'acc': give one of accuracy"):
        load_target(f"{tmp_path / 'made.py'}:build")
