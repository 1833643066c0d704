"""What calibration tells nothing of loses its smallest weights, as many as it must, in the pattern."""

from __future__ import annotations

import pytest
import torch
from cases import seeded
from torch import nn

from brainsurgeon.engine.layer.patterns import parse_pattern
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.pruning.layerwise.unseen import by_magnitude, maps_by_magnitude


def test_the_smallest_weights_go() -> None:
    model = seeded(lambda: nn.ModuleDict({"table": nn.Embedding(6, 5), "other": nn.Linear(5, 4)}), 0)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    masks = by_magnitude(model, {"table.weight": 11})
    assert list(masks) == ["table.weight"]
    gone = before["table.weight"].abs().flatten().argsort()[:11]
    assert masks["table.weight"].flatten().nonzero().squeeze(1).tolist() == sorted(gone.tolist())
    assert torch.equal(model["table"].weight == 0, masks["table.weight"])
    assert torch.equal(model["other"].weight, before["other.weight"])


@pytest.mark.parametrize("layer", [nn.Linear(8, 4), nn.Conv2d(4, 6, 2), nn.Conv2d(8, 6, 2, groups=2)], ids=str)
def test_linear_maps_keep_to_the_pattern(layer: nn.Module) -> None:
    model = nn.Sequential(layer)
    (linear,) = linear_maps(model, ["0.weight"])
    before = linear.rows(linear.weight.detach().abs().clone()).reshape(-1, 4)
    count = linear.weight.numel() // 2
    mask = maps_by_magnitude(model, [linear], {"0.weight": count}, parse_pattern("2:4"))["0.weight"]
    assert torch.equal(linear.weight == 0, mask)
    rows = linear.rows(mask).reshape(-1, 4)
    assert (rows.sum(1) == 2).all()
    kept, gone = before.masked_fill(rows, torch.inf).amin(1), before.masked_fill(~rows, 0).amax(1)
    assert (gone <= kept).all()
