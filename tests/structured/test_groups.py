"""Units that lie along the same axes form a group; what ties them down is named."""

from __future__ import annotations

import structures as s
import torch
from around import Around, found, targets
from shrinking import QUICK
from torch import nn

from brainsurgeon.structured.shrink import shrink


def test_a_tied_weight_is_refused_by_name() -> None:
    result = shrink(s.seeded(s.Tied), s.vectors(classes=6), units=0.5, **QUICK)
    assert list(result.kept) == ["third"]
    assert "is tied to another weight" in result.left["first.weight"]


def test_a_layer_that_is_called_twice_loses_the_same_units_each_time() -> None:
    model = Around(nn.Linear(6, 8), lambda x, m: m(m(x).relu()), nn.Linear(8, 3), m=nn.Linear(8, 8))
    inputs = s.vectors(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units, group.writers) for group in prepared.groups] == [
        ("first", 8, ("first.weight", "others.m.weight"))
    ]


def test_joined_branches_keep_their_own_units() -> None:
    model = Around(
        nn.Linear(6, 8),
        lambda x, a, b: torch.cat([a(x), b(x)], 1),
        nn.Linear(9, 3),
        a=nn.Linear(8, 4),
        b=nn.Linear(8, 5),
    )
    inputs = s.vectors(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert {group.name: group.units for group in prepared.groups} == {"first": 8, "others.a": 4, "others.b": 5}
