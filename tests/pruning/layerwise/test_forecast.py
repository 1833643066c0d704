"""What a layer-wise run will take is told before it starts, with what would fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.fitting import needs_of
from brainsurgeon.pruning.layerwise.forecast import forecast
from brainsurgeon.pruning.methods import make_method


def surgery() -> brainsurgeon.Surgery:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    return brainsurgeon.Surgery(model, (torch.randn(80, 12), torch.randint(4, (80,))), progress=False)


def test_memory_seconds_and_the_words_for_them() -> None:
    prepared = surgery()
    before = [parameter.clone() for parameter in prepared.original.parameters()]
    found = forecast(prepared, 0.5)
    assert found.memory == needs_of(make_method("layerwise"), prepared)
    assert set(found.seconds) == {"costs", "moments", "layers", "outputs", "report", "allocation"}
    assert all(0 < seconds < 60 for seconds in found.seconds.values())
    assert "of memory" in str(found)
    assert " s" in str(found)
    assert all(torch.equal(a, b) for a, b in zip(before, prepared.original.parameters(), strict=True))


def test_what_does_not_fit_is_told_with_what_would_and_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = surgery()
    needed = sum(needs_of(make_method("layerwise"), prepared).values())
    monkeypatch.setattr("brainsurgeon.pruning.fitting.available_bytes", lambda _: needed - 1000)
    found = forecast(prepared, 0.5, "wanda", "uniform")
    assert "What would fit" in found.problem
    assert found.seconds == {}
    assert "It does not fit" in str(found)


def test_only_layer_wise_methods_with_samples_are_foreseen() -> None:
    with pytest.raises(BrainsurgeonError, match="only layer-wise runs"):
        forecast(surgery(), 0.5, "cbs")
    with pytest.raises(BrainsurgeonError, match="needs calibration samples"):
        forecast(brainsurgeon.Surgery(nn.Linear(4, 4), progress=False), 0.5)


def test_a_language_model_that_does_not_fit_may_be_left_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from language_folders import small_model

    prepared = brainsurgeon.Surgery(small_model(), torch.randint(40, (16, 12)), "next_token", progress=False)
    needed = needs_of(make_method("layerwise"), prepared)
    monkeypatch.setattr("brainsurgeon.pruning.fitting.available_bytes", lambda _: sum(needed.values()) - 1)
    assert "--on-disk" in forecast(prepared, 0.5).problem
    monkeypatch.setattr("brainsurgeon.pruning.fitting.available_bytes", lambda _: 1000)
    assert "--on-disk" not in forecast(prepared, 0.5).problem
