"""What a layer-wise run takes, from shapes: counted by hand for one layer, and in proportion to samples."""

import pytest
from torch import nn

from brainsurgeon.pruning.layerwise.forecast import FACTORS, PASSES, PRODUCTS, forecast


def test_one_layer_by_hand() -> None:
    model = nn.Sequential(nn.Linear(8, 4, bias=False))
    found = forecast(model, ["0.weight"], samples=100, positions=3)
    assert found.moments == 2 * 300 * 8 * 8
    assert found.layers == PRODUCTS * 2 * 4 * 8 * 8 + FACTORS * 8**3
    assert found.passes == pytest.approx(2 * 300 * PASSES * 32 + 8 * 32 * 3 * 32)
    assert found.hidden_bytes == 4 * 300 * 8
    assert found.operations == found.passes + found.moments + found.layers


def test_moments_follow_the_samples_and_the_solution_does_not() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 2))
    few, many = (forecast(model, ["0.weight", "2.weight"], count, 4) for count in (100, 200))
    assert many.moments == 2 * few.moments
    assert (many.layers, many.layer_bytes) == (few.layers, few.layer_bytes)
