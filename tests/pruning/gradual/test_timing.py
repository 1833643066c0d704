"""What pruning while training will take: whole steps of the kind that the run takes, counted and multiplied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gradual_cases import data, model
from torch import Tensor, nn

from brainsurgeon import Surgery
from brainsurgeon.pruning.gradual import timing
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.timing import seconds_of_training
from brainsurgeon.samples.batches import Batch, Batches


def noisy(batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs, targets = batch
    return inputs + torch.randn(inputs.shape, generator=generator), targets


def asked(monkeypatch: pytest.MonkeyPatch, each: float, method: Gradual, samples: int = 300) -> tuple[float, list[int]]:
    """Return what is foreseen where a step takes so many seconds, and how many steps were taken each time."""
    taken: list[int] = []

    def prune(self: Surgery, sparsity: float, method: Gradual, budget: Any) -> Any:
        assert method.batch_size is not None
        taken.append(method.max_gradients // method.batch_size)
        return SimpleNamespace(seconds={"training": each * taken[-1]})

    monkeypatch.setattr(Surgery, "prune", prune)
    return seconds_of_training(method, Surgery(model(), data(samples)), 0.5), taken


def test_steps_are_multiplied_and_a_slow_one_is_not_taken_often(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, 1.0, Gradual(max_gradients=64_000)) == (pytest.approx(1000.0), [timing.WARM])
    assert asked(monkeypatch, 0.03, Gradual(max_gradients=64_000)) == (pytest.approx(30.0), [timing.WARM, 10])
    quick = asked(monkeypatch, 1e-4, Gradual(max_gradients=64_000, batch_size=16))
    assert quick == (pytest.approx(0.4), [timing.WARM, timing.MOST])


@pytest.mark.parametrize("samples", [100, 6000])
@pytest.mark.parametrize("augment", [None, noisy])
def test_the_steps_are_those_of_the_run(samples: int, augment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples are timed, but what a step minimises is what it will be with all of them."""
    method = Gradual(max_gradients=1280, learning_rate=0.01, augment=augment)
    surgery = Surgery(model(), data(samples), progress=False)
    found, plain = [], Surgery.prune

    def prune(self: Surgery, *given: Any, **named: Any) -> Any:
        result = plain(self, *given, **named)
        found.append(result)
        return result

    monkeypatch.setattr(Surgery, "prune", prune)
    assert seconds_of_training(method, surgery, 0.5) > 0
    run = plain(surgery, 0.5, method)
    for timed in found:
        assert timed.settings["batch_size"] == run.settings["batch_size"] == 64
        assert timed.settings["views"] == run.settings["views"]
        assert timed.settings["mixup"] == run.settings["mixup"]
        for part in ("share", "temperature", "features"):
            assert timed.settings["lesson"][part] == run.settings["lesson"][part]
    assert (run.settings["views"], run.settings["lesson"]["share"]) == {
        (100, None): (1, 1.0),
        (100, noisy): (1, 1.0),
        (6000, None): (1, 0.5),
        (6000, noisy): (2, 0.9),
    }[samples, augment]


@pytest.mark.parametrize("method", [Gradual(max_gradients=640), Gradual(max_gradients=640, batch_size=32)])
@pytest.mark.parametrize("batches", [[100], [50, 50], [128, 5], [5, 5, 5]], ids=str)
def test_inputs_alone_are_timed_however_they_come(batches: list[int], method: Gradual) -> None:
    """A list of two tensors is not taken for inputs and targets."""
    inputs, _ = data(sum(batches))
    given = inputs if len(batches) == 1 else Batches(inputs.split(batches))
    assert seconds_of_training(method, Surgery(model(), given, "match", progress=False), 0.5) > 0


def test_pictures_that_are_mixed_are_warped_in_the_steps_that_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(144, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 3))
    pictures = torch.rand(6000, 1, 12, 12), torch.arange(6000) % 3
    found, plain = [], Surgery.prune
    monkeypatch.setattr(Surgery, "prune", lambda *given, **named: found.append(plain(*given, **named)) or found[-1])
    method = Gradual(max_gradients=640, distil=1.0, mix=True, learning_rate=0.01)
    surgery = Surgery(network, pictures, progress=False)
    assert seconds_of_training(method, surgery, 0.5) > 0
    for result in (*found, plain(surgery, 0.5, method)):
        assert result.settings["warp"]
        assert result.settings["mixup"]


def test_nothing_is_told_and_the_model_is_left_alone() -> None:
    told: list[Any] = []
    network = model()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    surgery = Surgery(network, data(), progress=False, callback=told.append)
    assert 0 < seconds_of_training(Gradual(max_gradients=640), surgery, 0.5) < 60
    assert not told
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert surgery.data is not None
    assert surgery.prune(0.5, "gradual", max_gradients=640).sparsity == 0.5
