"""The epochs of a fine-tune: judged on held-out samples, the best kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import CASES
from pruned import pruned
from torch import Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset

from brainsurgeon import BrainsurgeonError, finetune
from brainsurgeon.events import Event
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.training.loop import Tuning
from brainsurgeon.training.settings import FinetuneSettings


def test_it_stops_early_and_keeps_the_best_weights() -> None:
    case = CASES["linear"]
    inputs, targets = case.data()
    seen: list[Event] = []
    tuned = finetune(
        pruned(case).model, (inputs, targets), held_out=(inputs, (targets + 1) % 3), epochs=50, patience=2,
        learning_rate=0.5, callback=seen.append,
    )  # fmt: skip  # what it learns is wrong for the held-out samples
    assert len(tuned.epochs) < 50
    assert tuned.held_out_after == min([tuned.held_out_before, *(epoch["held_out"] for epoch in tuned.epochs)])
    assert [event.done for event in seen] == list(range(1, len(tuned.epochs) + 1))
    held_out = nn.functional.cross_entropy(tuned.model(inputs), (targets + 1) % 3).item()
    assert held_out == pytest.approx(tuned.held_out_after, rel=1e-4)  # the weights themselves are those of that epoch
    assert tuned.best_epoch == len(tuned.epochs) - 2


def test_without_held_out_samples_the_last_weights_are_kept() -> None:
    case = CASES["linear"]
    tuned = finetune(pruned(case).model, case.data(), epochs=3, held_out_share=0)
    assert tuned.best_epoch == 3
    assert math.isnan(tuned.held_out_before)
    assert "nothing was held out (epoch 3 of 3 kept)" in tuned.summary()


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_weights_are_copied_at_first_and_where_a_held_out_loss_is_better(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, copy = [], Tuning._copy
    monkeypatch.setattr(Tuning, "_copy", lambda run: taken.append(run) or copy(run))
    case = CASES["linear"]
    tuned = finetune(pruned(case).model, case.data(), epochs=4, held_out_share=share)
    losses = [tuned.held_out_before, *(epoch["held_out"] for epoch in tuned.epochs)]
    better = sum(loss < min(losses[:k]) for k, loss in enumerate(losses) if k)
    assert len(taken) == 1 + better
    assert share or (tuned.best_epoch, better) == (4, 0)


def test_a_bad_sample_is_named_though_nothing_is_held_out() -> None:
    case = CASES["linear"]
    inputs, targets = (part.clone() for part in case.data())
    inputs[2, 0] = math.nan
    with pytest.raises(BrainsurgeonError, match="of the training samples"):
        finetune(pruned(case).model, (inputs, targets), epochs=2, held_out_share=0)


@pytest.mark.parametrize("wrap", [tuple, lambda parts: TensorDataset(*parts)], ids=["tensors", "data set"])
def test_batch_normalisation_is_trained_where_one_sample_is_left_for_the_last_batch(
    wrap: Callable[[list[Tensor]], Any],
) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    data = wrap([torch.randn(13, 6), torch.arange(13) % 3])
    tuned = finetune(model, data, masks={}, epochs=2, batch_size=4, held_out_share=0)
    assert all(math.isfinite(epoch["loss"]) for epoch in tuned.epochs)
    assert tuned.model.get_buffer("1.num_batches_tracked") == 2 * 3


def test_empty_batches_are_no_divergence() -> None:
    case = CASES["linear"]
    inputs, targets = case.data()
    empty = (inputs[:0], targets[:0])
    tuned = finetune(
        pruned(case).model, [(inputs, targets), empty], held_out=[(inputs, targets), empty], epochs=2, learning_rate=0.1
    )
    assert tuned.held_out_after < tuned.held_out_before
    assert all(math.isfinite(value) for epoch in tuned.epochs for value in epoch.values())


def test_augmentation_draws_from_the_generator_given() -> None:
    case = CASES["linear"]

    def noisy(batch: tuple[Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return batch[0] + 0.1 * torch.randn(batch[0].shape, generator=generator), batch[1]

    plain = finetune(pruned(case).model, case.data(), epochs=1)
    first, second = (finetune(pruned(case).model, case.data(), epochs=1, augment=noisy) for _ in range(2))
    assert first.epochs == second.epochs != plain.epochs


def test_an_augment_that_writes_in_place_leaves_the_samples_as_they_were() -> None:
    def louder(batch: tuple[Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return batch[0].add_(1.0), batch[1].fill_(0)

    def louder_elsewhere(batch: tuple[Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return batch[0] + 1.0, torch.zeros_like(batch[1])

    case = CASES["linear"]
    batches, kept = ([case.data(), case.data()] for _ in range(2))
    found, expected = (
        finetune(pruned(case).model, batches, epochs=2, held_out_share=0, augment=augment)
        for augment in (louder, louder_elsewhere)
    )
    assert all(
        torch.equal(a, b) for one, other in zip(batches, kept, strict=True) for a, b in zip(one, other, strict=True)
    )
    assert found.epochs == expected.epochs


def test_it_trains_in_training_mode_and_judges_in_evaluation_mode() -> None:
    class Watched(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            seen.append((self.training, torch.is_grad_enabled()))
            return super().forward(inputs)

    seen: list[tuple[bool, bool]] = []
    inputs, targets = CASES["linear"].data()
    masks = {"weight": torch.eye(3, 6, dtype=torch.bool)}
    finetune(
        Watched(6, 3), (inputs, targets), masks=masks, held_out=(inputs, targets), epochs=2, batch_size=len(inputs)
    )
    assert seen == [(False, False), (True, True), (False, False), (True, True), (False, False)]


def tuning(held_out: object, **settings: object) -> Tuning:
    """The training of one linear map by plain descent, without momentum in its first step."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -1.0]]))
    plain = {"epochs": 1, "learning_rate": 0.1, "warmup": 0.0, "weight_decay": 0.0, "batch_size": 4, **settings}
    return Tuning(BatchLoss(model, "mse"), FinetuneSettings(**plain), held_out, None, torch.Generator().manual_seed(0))


def test_one_step_is_that_of_nesterovs_momentum_at_the_rate_of_its_middle() -> None:
    """w ← w − η(1 + μ)∇L, with the rate half-way down its cosine."""
    inputs, targets = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), torch.zeros(3, 1)
    run = tuning(None)
    weight = run.batch_loss.model.get_parameter("weight")
    gradient = 2 * (inputs @ weight.detach().T * inputs).mean(0)
    expected = weight.detach() - 0.1 * 0.5 * 1.9 * gradient
    epochs, best, _ = run.train((inputs, targets), {}, math.nan, lambda event: None)
    torch.testing.assert_close(weight.detach(), expected)
    assert epochs[0]["loss"] == pytest.approx((1 + 4 + 0) / 3)
    assert best == 1


def test_an_epoch_of_unknown_length_is_trained_on_to_its_end() -> None:
    """Its rate is that of the epoch's middle, and the next epochs are as long."""
    steps = [(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 1))] * 4

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(steps)

    def rates(data: Any, epochs: int) -> list[float]:
        run, taken = tuning(None, epochs=epochs), list[float]()
        step = run.optimizer.step
        run.optimizer.step = lambda: (taken.append(run.optimizer.param_groups[0]["lr"]), step())  # type: ignore
        run.train(data, {}, math.nan, lambda event: None)
        return taken

    assert rates(Stream(), 1) == pytest.approx([0.05] * 4)
    known, unknown = rates(steps, 2), rates(Stream(), 2)
    assert unknown[4:] == pytest.approx(known[4:])
    assert unknown[:4] == pytest.approx([sum(known[1:3]) / 2] * 4, rel=0.02)


def test_the_held_out_loss_is_the_mean_over_samples_though_batches_differ_in_size() -> None:
    inputs = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [3.0, 0.0], [0.0, 1.0]])
    run = tuning((inputs, torch.zeros(5, 1)), batch_size=4)
    assert run.held_out_loss() == pytest.approx((1 + 4 + 0 + 9 + 1) / 5)
    assert math.isnan(tuning(None).held_out_loss())
    with pytest.raises(BrainsurgeonError, match="there are no held-out samples"):
        tuning(iter([])).held_out_loss()


def test_a_held_out_loss_that_is_not_finite_is_infinite_and_laid_to_a_sample_when_asked() -> None:
    inputs = torch.ones(6, 2)
    inputs[4, 0] = math.nan
    run = tuning((inputs, torch.zeros(6, 1)))
    assert run.held_out_loss() == math.inf
    with pytest.raises(BrainsurgeonError, match="of the held-out samples"):
        run.held_out_loss(checked=True)
