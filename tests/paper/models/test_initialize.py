"""Weights drawn anew: of the right size for what follows, and from the generator alone."""

import math

import pytest
import torch
from torch import nn

from brainsurgeon.paper.models.initialize import initialize


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(8, 64, 5), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 9, groups=64), nn.Flatten(), nn.Linear(400, 300)
    )


def test_deviations_are_those_of_he_by_fan_in_and_of_the_last_layer_plain() -> None:
    """√(2/fan-in) before a ReLU, √(1/fan-in) before the logits; a depthwise kernel reads one channel."""
    model = network()
    initialize(model, torch.Generator().manual_seed(0))
    for place, expected in ((0, math.sqrt(2 / 200)), (2, math.sqrt(2 / 81)), (4, math.sqrt(1 / 400))):
        assert float(model[place].weight.detach().std()) == pytest.approx(expected, rel=0.05)
        assert not model[place].bias.any()


def test_normalisation_starts_as_the_identity() -> None:
    model = network()
    nn.init.constant_(model[1].weight, 3.0)
    model[1].running_mean.fill_(5.0)
    initialize(model, torch.Generator().manual_seed(0))
    assert torch.equal(model[1].weight, torch.ones(64))
    assert not model[1].running_mean.any()


def test_the_generator_says_what_is_drawn() -> None:
    first, again, other = network(), network(), network()
    before = torch.random.get_rng_state()
    for model, seed in ((first, 0), (again, 0), (other, 1)):
        initialize(model, torch.Generator().manual_seed(seed))
    assert torch.equal(first[4].weight, again[4].weight)
    assert not torch.equal(first[4].weight, other[4].weight)
    assert torch.equal(torch.random.get_rng_state(), before)
