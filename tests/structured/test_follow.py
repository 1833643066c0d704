"""Labels follow the data through a graph, and meet in the weights."""

from __future__ import annotations

import structures as s
from around import Around, found, targets
from torch import nn


def test_a_product_along_another_axis_passes_units_on() -> None:
    """As in mixers: a linear layer over positions leaves the channels to go by themselves."""
    model = Around(
        nn.Linear(6, 8), lambda x, t: t(x.transpose(1, 2)).transpose(1, 2), nn.Linear(8, 3), t=nn.Linear(5, 4)
    )
    inputs = s.sequences(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units) for group in prepared.groups] == [("first", 8)]
    assert "along an axis that holds no units" in prepared.left["others.t.weight"]
