"""Losses that are not finite, not the same twice, or not of one sample are noticed, and the sample is named."""

from typing import Any

import pytest
import torch
from small import network, pair, samples
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.checks import (
    BadSampleError,
    check_loss,
    check_samples,
    check_separate,
    check_suspects,
    coupling,
)
from brainsurgeon.network.loss import BatchLoss


def test_a_loss_that_changes_from_call_to_call_is_refused() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(super().forward(x), 0.5, training=True)

    with pytest.raises(BrainsurgeonError, match="not deterministic"):
        check_loss(BatchLoss(Noisy(6, 3), "cross_entropy"), pair())


def test_a_loss_that_is_not_finite_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="loss is nan at sample 0"):
        check_loss(BatchLoss(nn.Linear(6, 3), "cross_entropy"), (torch.full((4, 6), torch.nan), pair()[1]))


@pytest.mark.parametrize(
    "loss",
    [
        "cross_entropy",
        nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0])),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]) + 0.1 * model[0].weight.square().sum(),
    ],
)
def test_means_of_any_weights_do_not_count_as_coupled(loss: Any) -> None:
    batch_loss = BatchLoss(network(), loss)
    if callable(loss) and not isinstance(loss, nn.Module):
        model = network()
        batch_loss = BatchLoss(model, lambda model, batch: loss(model, batch))
    assert coupling(batch_loss, samples(16)) == ""


def test_a_sum_is_told_from_a_mean() -> None:
    found = coupling(BatchLoss(network(), nn.CrossEntropyLoss(reduction="sum")), samples(16))
    assert "sum over samples" in found


def test_a_coupled_loss_is_refused_for_single_samples_and_noted_for_groups() -> None:
    loss = BatchLoss(network(), lambda output, target: F.cross_entropy(output - output.mean(0), target))
    with pytest.raises(BrainsurgeonError, match=r"couples the samples.*gradient_batch=32"):
        check_separate(loss, samples(16), 1)
    for group in (None, 0, 8):
        (note,) = check_separate(loss, samples(16), group)
        assert "depends on which of them come together" in note
    assert check_separate(BatchLoss(network(), "cross_entropy"), samples(16), 1) == ()


def test_a_loss_that_one_sample_does_not_have_is_refused_unless_batches_are_whole() -> None:
    """Batch normalisation refuses a single sample in training."""
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).train()
    loss = BatchLoss(model, "cross_entropy")
    for group in (None, 1):
        with pytest.raises(BrainsurgeonError, match="cannot be had of a single sample"):
            check_separate(loss, samples(16), group)
    assert len(check_separate(loss, samples(16), 0)) == 1


def test_a_sum_is_noted_and_not_refused() -> None:
    (note,) = check_separate(BatchLoss(network(), nn.CrossEntropyLoss(reduction="sum")), samples(16), 1)
    assert "the loss is no mean" in note


def test_a_bad_sample_is_named_by_its_number_and_found_in_the_data() -> None:
    inputs, targets = samples(20)
    inputs[7, 2] = torch.inf
    loss = BatchLoss(network(), "cross_entropy")
    with pytest.raises(BadSampleError, match=r"sample 10 of the samples .*1 of its 6 numbers are NaN") as found:
        check_samples(loss, (inputs[4:9], targets[4:9]), start=7)
    assert found.value.number == 10
    assert str(found.value.located(None, (inputs, targets))).endswith("; it is index 7 of the data")
    assert str(found.value.located(samples(3))) == str(found.value)


def test_suspects_are_counted_over_batches_and_numbers_that_are_meant_are_let_be() -> None:
    """A sample with an infinite number is refused only where its loss is not finite."""
    (inputs, targets), model = samples(20), network()
    inputs[13, 0] = torch.inf
    batches = [(inputs[k : k + 5], targets[k : k + 5]) for k in range(0, 20, 5)]
    with pytest.raises(BadSampleError, match="sample 13 of"):
        check_suspects(BatchLoss(model, "cross_entropy"), batches)
    check_suspects(BatchLoss(nn.Sequential(nn.Hardtanh(), model), "cross_entropy"), batches)


def test_a_weight_that_is_not_finite_is_named_and_not_the_data() -> None:
    model = network()
    with torch.no_grad():
        next(model.parameters())[0, 0] = float("nan")
    name = next(name for name, _ in model.named_parameters())
    with pytest.raises(BrainsurgeonError, match=f"parameter '{name}' holds NaN"):
        check_loss(BatchLoss(model, "cross_entropy"), pair())
