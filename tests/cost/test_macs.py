"""Multiply-adds that can be worked out by hand."""

from __future__ import annotations

import pytest
import torch
from cases import TABLE, Case
from torch import nn

from brainsurgeon import prune
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.network.zeros import set_zeros
from brainsurgeon.paper.models import build


def test_multiply_adds_of_linear_layers_are_their_weights() -> None:
    model = build("mlpnet")
    masks = {"fc1.weight": torch.zeros(40, 784, dtype=torch.bool)}
    masks["fc1.weight"][:10] = True
    set_zeros(model, masks)
    assert count_multiply_adds(model, torch.zeros(3, 1, 28, 28), masks) == (3 * 32_360, 3 * (32_360 - 7840))


def test_weights_that_share_a_storage_are_told_apart() -> None:
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    vector = nn.utils.parameters_to_vector(model.parameters()).detach()
    nn.utils.vector_to_parameters(vector, model.parameters())
    masks = {"0.weight": torch.arange(6).expand(32, 6) < 3, "2.weight": torch.zeros(3, 32, dtype=torch.bool)}
    set_zeros(model, masks)
    assert count_multiply_adds(model, torch.zeros(1, 6), masks) == (192 + 96, 96 + 96)


def test_multiply_adds_of_convolutions_count_every_place() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 4, 1, groups=2))
    masks = {"0.weight": torch.zeros(4, 2, 3, 3, dtype=torch.bool)}
    masks["0.weight"][:1] = True
    set_zeros(model, masks)
    dense, sparse = count_multiply_adds(model, torch.zeros(1, 2, 6, 6), masks)
    first, second = 72 * 16, 4 * 2 * 16
    assert (dense, sparse) == (first + second, first * 3 // 4 + second)


def test_multiply_adds_of_recurrent_layers_count_every_step() -> None:
    model = nn.LSTM(3, 5, batch_first=True)
    masks = {"weight_ih_l0": torch.ones(20, 3, dtype=torch.bool)}
    set_zeros(model, masks)
    inputs, hidden = 2 * 4 * 20 * 3, 2 * 4 * 20 * 5
    assert count_multiply_adds(model, torch.zeros(2, 4, 3), masks) == (inputs + hidden, hidden)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_every_kind_of_model_is_counted(case: Case) -> None:
    """At the sparsity r of a layer a share r of its multiply-adds is saved, whatever kind of layer it is."""
    result = prune(case.model(), case.data(), 0.6, "mp", case.loss, num_gradients=1, progress=False, budget="uniform")
    data = case.data()
    dense, sparse = count_multiply_adds(result.model, data["x"] if isinstance(data, dict) else data[0], result.masks)
    assert 0 < sparse < 0.8 * dense
