"""Labels follow the data through a graph, and meet in the weights."""

from __future__ import annotations

import structures as s
import torch
from around import Around, found, targets
from torch import nn

from brainsurgeon.structured.shrink import shrink


class Heads(nn.Module):
    """Attention as most write it by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.wide, self.last = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 2, 4).transpose(1, 2) for part in self.qkv(x).split(8, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return self.last(self.wide(y).relu()).mean(1)


def test_a_view_of_what_was_laid_out_anew_is_followed() -> None:
    result = shrink(s.seeded(Heads), s.sequences(width=8), units=0.5, progress=False, seconds=0)
    assert result.model.get_submodule("wide").out_features == 8


def test_a_product_along_another_axis_passes_units_on() -> None:
    """As in mixers: a linear layer over positions leaves the channels to go by themselves."""
    model = Around(
        nn.Linear(6, 8), lambda x, t: t(x.transpose(1, 2)).transpose(1, 2), nn.Linear(8, 3), t=nn.Linear(5, 4)
    )
    inputs = s.sequences(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units) for group in prepared.groups] == [("first", 8)]
    assert "along an axis that holds no units" in prepared.left["others.t.weight"]
