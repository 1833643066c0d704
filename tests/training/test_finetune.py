"""The fine-tuning helper: it learns, stops in time, and the count is the same after it."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from cases import CASES, TABLE, Case
from pruned import pruned
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import brainsurgeon
from brainsurgeon import BrainsurgeonError, finetune
from brainsurgeon.events import clock
from brainsurgeon.network.zeros import set_zeros
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.training.freeze import FrozenZeros
from brainsurgeon.training.settings import FinetuneSettings


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_every_kind_of_model_is_trained_with_its_count_kept(case: Case) -> None:
    result = pruned(case)
    tuned = finetune(
        result.model, case.data(), case.loss, masks=result.masks, epochs=2, batch_size=4, optimizer="adamw"
    )
    assert tuned.pruned == result.pruned
    assert tuned.held_out_after <= tuned.held_out_before
    for name, mask in result.masks.items():
        assert not tuned.model.get_parameter(name)[mask].any()


def test_a_ruined_network_recovers() -> None:
    """Magnitude pruning at 0.95 costs the demonstration network dearly; a few epochs bring most of it back."""
    model, data = load_demo()
    result = brainsurgeon.prune(model, data.train(), 0.95, "mp", progress=False)
    before = accuracy(result.model, data)
    tuned = finetune(result.model, data.train(), masks=result.masks, epochs=5, learning_rate=0.05)
    assert accuracy(tuned.model, data) > before + 5
    assert tuned.pruned == result.pruned
    assert accuracy(result.model, data) == before  # the model given is as it was


def test_the_same_seed_gives_the_same_weights() -> None:
    case = CASES["linear"]
    result = pruned(case)
    first, second = (finetune(result.model, case.data(), epochs=2, batch_size=4) for _ in range(2))
    assert first.epochs == second.epochs
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: DataLoader(d, 5)], ids=["data set", "loader"])
def test_data_sets_and_loaders(wrap) -> None:  # type: ignore[no-untyped-def]
    case = CASES["linear"]
    source = wrap(TensorDataset(*case.data()))
    tuned = finetune(pruned(case).model, source, held_out=case.data(), epochs=2)
    assert len(tuned.epochs) == 2
    assert all(math.isfinite(epoch["loss"]) for epoch in tuned.epochs)


def test_a_data_set_is_split_by_itself() -> None:
    case = CASES["linear"]
    tuned = finetune(pruned(case).model, TensorDataset(*case.data()), epochs=1)
    assert math.isfinite(tuned.held_out_before)


def test_frozen_parameters_and_the_mode_are_left_alone() -> None:
    case = CASES["batch_norm_dropout"]
    model = pruned(case).model.eval()
    model.get_parameter("0.bias").requires_grad_(False)
    tuned = finetune(model, case.data(), epochs=1, in_place=True)
    assert tuned.model is model
    assert not model.training
    assert torch.equal(model.get_parameter("0.bias"), case.model().get_parameter("0.bias"))


def test_weights_that_were_not_zero_yet_are_zero_afterwards_whatever_epoch_is_kept() -> None:
    case = CASES["linear"]
    inputs, _ = case.data()
    masks = {"0.weight": torch.arange(48).view(8, 6) % 2 == 0}
    model = case.model()
    set_zeros(model, masks)
    settled = (inputs, model(inputs).argmax(1))  # no epoch is better for these: the weights from before are kept
    away = (inputs, model(inputs).argmin(1))
    tuned = finetune(case.model(), away, masks=masks, held_out=settled, epochs=2, learning_rate=0.1)
    assert (tuned.best_epoch, tuned.pruned) == (0, 24)


def test_the_count_is_verified_in_the_finished_model(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["linear"]
    monkeypatch.setattr(FrozenZeros, "_clear", lambda *_: None)  # as if the hooks did nothing
    with pytest.raises(BrainsurgeonError, match="are no longer zero"):
        finetune(pruned(case).model, case.data(), epochs=1, held_out_share=0)


def test_bad_calls_are_answered_in_words() -> None:
    case = CASES["linear"]
    model = pruned(case).model
    loader = DataLoader(TensorDataset(*case.data()))
    with pytest.raises(BrainsurgeonError, match=r"a DataLoader cannot be split: give held_out"):
        finetune(model, loader)
    with pytest.raises(BrainsurgeonError, match="too few to hold some out"):
        finetune(model, (torch.ones(1, 6), torch.zeros(1, dtype=torch.long)))
    with pytest.raises(BrainsurgeonError, match="an iterator can be read once"):
        finetune(model, iter([case.data()]), held_out_share=0)
    with pytest.raises(BrainsurgeonError, match="there are no held-out samples"):
        finetune(model, case.data(), held_out=[])
    with pytest.raises(BrainsurgeonError, match="fine-tuning diverged in epoch"):
        finetune(model, case.data(), learning_rate=1e30)
    with pytest.raises(BrainsurgeonError, match="no exact zeros"):
        finetune(nn.Linear(6, 3), case.data())


def test_what_is_no_setting_or_cannot_be_trained_is_refused_in_words() -> None:
    case = CASES["linear"]
    model, data = pruned(case).model, case.data()
    with pytest.raises(BrainsurgeonError, match=r"no setting 'epoch': give some of epochs"):
        finetune(model, data, epoch=1)
    with pytest.raises(BrainsurgeonError, match="must be a FinetuneSettings"):
        finetune(model, data, settings={"epochs": 1})  # type: ignore[arg-type]
    with pytest.raises(BrainsurgeonError, match="no parameter to train"):
        finetune(pruned(case).model.requires_grad_(False), data)
    with pytest.raises(BrainsurgeonError, match="no parameter to train"):
        finetune(nn.ReLU(), data, masks={})
    model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(BrainsurgeonError, match="the model cannot be copied"):
        finetune(model, data)


def test_options_change_settings_that_are_given() -> None:
    case = CASES["linear"]
    tuned = finetune(pruned(case).model, case.data(), settings=FinetuneSettings(epochs=3, seed=5), epochs=1)
    assert (len(tuned.epochs), tuned.settings["seed"]) == (1, 5)


def test_a_batch_that_the_model_does_not_take_is_told_in_words() -> None:
    case = CASES["linear"]
    inputs, targets = case.data()
    model = pruned(case).model
    for share in (0.0, 0.1):
        with pytest.raises(BrainsurgeonError, match=r"float64.*convert the data"):
            finetune(model, (inputs.double(), targets), held_out_share=share)
    with pytest.raises(BrainsurgeonError, match="it is detached"):
        finetune(model, (inputs, targets), lambda o, t: nn.functional.cross_entropy(o.detach(), t))


def test_a_long_epoch_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["linear"]
    monkeypatch.setattr(clock, "PULSE", 0.0)
    told: list[str] = []
    finetune(pruned(case).model, case.data(), epochs=1, batch_size=2, callback=lambda event: told.append(event.stage))
    assert told.count("working") > 2  # one a batch
    assert "fine-tune" in told


def test_the_callers_autocast_reaches_the_training() -> None:
    model, data = load_demo()
    seen: set[torch.dtype] = set()
    inputs, targets = data.train()

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.add(output.dtype)
        return nn.functional.cross_entropy(output.float(), target)

    with torch.autocast("cpu", torch.bfloat16):
        finetune(model, (inputs[:200], targets[:200]), loss, masks={}, epochs=1)
    assert seen == {torch.bfloat16}
