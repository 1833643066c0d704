"""The costs of rows: block by block they are those of the whole network, and none where none are wanted."""

from __future__ import annotations

import copy
from typing import Any

import torch
from cases import seeded
from torch import nn

from brainsurgeon import Surgery
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.output_costs import output_costs
from brainsurgeon.network.partition import Chain, find_chain
from brainsurgeon.network.streaming import Stream
from brainsurgeon.pruning.layerwise.costs import row_costs

NAMES = ["0.0.weight", "1.0.weight", "2.0.weight"]


def case(loss: str = "cross_entropy", chained: bool = True) -> tuple[Surgery, BatchLoss, Stream]:
    def blocks() -> nn.Module:
        return nn.Sequential(*(nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(3)))

    model = seeded(blocks, 0)
    x, y = seeded(lambda: torch.randn(12, 5), 1), torch.arange(12) % 5
    data: Any = x if loss == "match" else (x, y)
    batches = [x[:8], x[8:]] if loss == "match" else [(x[:8], y[:8]), (x[8:], y[8:])]
    surgery = Surgery(model, data, loss, progress=False)
    own = BatchLoss(copy.deepcopy(model).eval(), surgery.loss)
    layers = linear_maps(own.model, NAMES)
    chain = find_chain(own.model, lambda: own(batches[0]), NAMES) if chained else Chain()
    assert bool(chain.names) == chained
    return surgery, own, Stream(own.model, own, batches, layers, chain, torch.device("cpu"))


def test_costs_are_the_same_with_a_chain_and_without() -> None:
    surgery, loss, stream = case()
    found, mean = row_costs("loss", surgery, loss, stream)
    whole, unseen = row_costs("loss", *case(chained=False))
    assert found.keys() == whole.keys() == set(NAMES)
    for name, costs in found.items():
        torch.testing.assert_close(costs, whole[name])
    assert unseen is None
    assert mean is not None
    losses = [(float(loss(batch)), len(batch[0])) for batch in stream.batches]
    assert abs(mean - sum(value * size for value, size in losses) / 12) < 1e-6


def test_no_costs_take_no_pass() -> None:
    surgery, loss, stream = case()
    assert row_costs("none", surgery, loss, stream) == ({}, None)


def test_the_distance_from_the_dense_outputs_is_asked_by_the_outputs_themselves() -> None:
    """Its gradient at the dense weights is zero; what is drawn for it is not."""
    surgery, loss, stream = case("match", chained=False)
    found, mean = row_costs("loss", surgery, loss, stream)
    assert mean is None
    assert all(bool((costs > 0).all()) for costs in found.values())
    plain = output_costs(loss, stream.layers, stream.batches)
    assert all(float(costs.max()) < 1e-9 for costs in plain.values())
