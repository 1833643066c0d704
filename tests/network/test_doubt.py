"""Doubt against probabilities by hand, and how often it has a sample drawn."""

import pytest
import torch
from torch import nn

from brainsurgeon.network.doubt import MOST, doubts, emphasis
from brainsurgeon.network.loss import output_loss


def test_doubt_is_what_the_highest_probability_leaves_and_asks_for_no_label() -> None:
    inputs = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 0.5]])
    wrong = torch.tensor([2, 2, 2])
    parts = output_loss("cross_entropy", nn.Identity(), (inputs, wrong))
    assert parts is not None
    found = doubts(parts, nn.Identity(), [(inputs[:2], wrong[:2]), (inputs[2:], wrong[2:])])
    expected = [1 - max(torch.exp(row - row.logsumexp(0)).tolist()) for row in inputs]
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
    assert found[1].item() == pytest.approx(2 / 3)


def test_a_share_of_the_draws_goes_by_doubt_and_the_rest_evenly() -> None:
    weights = emphasis(torch.tensor([0.0, 0.1, 0.2, 0.1]), 0.5)
    assert weights is not None
    assert weights.tolist() == pytest.approx([0.5, 1.0, 1.5, 1.0])
    assert emphasis(torch.tensor([0.0, 0.1, 0.2, 0.1]), 1.0).tolist() == pytest.approx([0, 1, 2, 1])  # type: ignore[union-attr]


def test_no_weight_is_above_four() -> None:
    weights = emphasis(torch.tensor([1.0] + [0.0] * 99), 0.5)
    assert weights is not None
    assert weights.max() == MOST == 4
    assert weights[1:].tolist() == [0.5] * 99


@pytest.mark.parametrize("doubt", [torch.zeros(4), torch.tensor([0.1, float("nan")])], ids=["sure", "not finite"])
def test_where_there_is_no_doubt_all_are_drawn_evenly(doubt: torch.Tensor) -> None:
    assert emphasis(doubt, 0.5) is None
    assert emphasis(torch.tensor([0.1, 0.2]), 0.0) is None
