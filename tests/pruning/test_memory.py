"""What a method needs of memory: said before the work starts, with settings that do fit."""

from typing import Any

import pytest
import torch
from torch import nn

from brainsurgeon.network.memory import DoesNotFitError
from brainsurgeon.network.weights import PrunableWeights, find_weights
from brainsurgeon.pruning import memory
from brainsurgeon.pruning.memory import check_memory, memory_needs
from brainsurgeon.pruning.methods import NAMES, make_method
from brainsurgeon.pruning.one_shot import OneShot

CPU = torch.device("cpu")
MODEL_BYTES = 4 * (24 * 12 + 3 * 24)


def weights() -> PrunableWeights:
    return find_weights(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)))


def total(method: str, **settings: Any) -> int:
    return sum(memory_needs(make_method(method, settings), weights(), MODEL_BYTES).values())


def test_gradients_are_counted_by_their_number_and_type() -> None:
    parts = memory_needs(make_method("cbs", {"num_gradients": 100}), weights(), MODEL_BYTES)
    assert parts["gradients"] == 100 * 360 * 4
    half = memory_needs(make_method("cbs", {"num_gradients": 100, "dtype": torch.bfloat16}), weights(), MODEL_BYTES)
    assert half["gradients"] == 100 * 360 * 2
    assert parts["copies of the model"] == 3 * MODEL_BYTES


def test_the_factor_is_of_the_rows_or_of_the_widest_block() -> None:
    for rows, blocks, side in ((100, "model", 100), (1000, "model", 360), (1000, "layer", 288), (1000, 50, 50)):
        parts = memory_needs(make_method("cbs", {"num_gradients": rows, "blocks": blocks}), weights(), MODEL_BYTES)
        assert parts["factor"] == 2 * 8 * side**2


def test_stages_count_their_gram_matrices_unless_they_take_none() -> None:
    parts = {
        kind: memory_needs(make_method("staged", {"curvature": kind}), weights(), MODEL_BYTES)
        for kind in ("auto", "gram", "fisher")
    }
    assert parts["auto"]["Gram matrices"] == parts["gram"]["Gram matrices"] == 16 * (12**2 + 24**2)
    assert "Gram matrices" not in parts["fisher"]
    assert "gradients" not in parts["gram"]
    assert parts["auto"]["gradients"] == parts["fisher"]["gradients"] > 0


def test_a_method_without_gradients_needs_no_memory_for_them() -> None:
    parts = memory_needs(make_method("mp"), weights(), MODEL_BYTES)
    assert parts.keys() == {"copies of the model", "masks and vectors"}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_says_what_it_needs(name: str) -> None:
    parts = memory_needs(make_method(name), weights(), MODEL_BYTES)
    assert all(isinstance(value, int) and value > 0 for value in parts.values())
    assert parts["copies of the model"] >= MODEL_BYTES


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_said_to_fit_is_the_most_that_does(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    free = total("cbs", num_gradients=40, dtype=dtype)
    monkeypatch.setattr(memory, "available_bytes", lambda device: free)

    def check(rows: int) -> None:
        check_memory(make_method("cbs", {"num_gradients": rows, "dtype": dtype}), weights(), MODEL_BYTES, CPU)

    check(40)
    with pytest.raises(DoesNotFitError, match="What would fit: num_gradients=40 or fewer"):
        check(41)
    with pytest.raises(DoesNotFitError, match="num_gradients=40 or fewer"):
        check(5000)


def test_half_precision_is_a_remedy_only_where_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    method = make_method("cbs", {"num_gradients": 100})
    assert isinstance(method, OneShot)
    enough = total("cbs", num_gradients=100, dtype=torch.bfloat16)
    for free, named in ((enough, True), (enough - 1, False)):
        monkeypatch.setattr(memory, "available_bytes", lambda device, free=free: free)
        with pytest.raises(DoesNotFitError) as refused:
            check_memory(method, weights(), MODEL_BYTES, CPU)
        assert ("dtype=bfloat16" in str(refused.value)) == named


@pytest.mark.parametrize("name", ["mp", "cbs", "staged", "layerwise", "gradual", "auto"])
def test_where_nothing_fits_fewer_layers_are_advised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 1000)
    with pytest.raises(DoesNotFitError, match=r"and 0\.0 GiB are free on cpu\. What would fit: .*fewer layers"):
        check_memory(make_method(name), weights(), MODEL_BYTES, CPU)
    monkeypatch.setattr(memory, "available_bytes", lambda device: None)
    check_memory(make_method(name), weights(), MODEL_BYTES, CPU)
