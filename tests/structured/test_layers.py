"""What layers with weights do to units."""

from __future__ import annotations

import pytest
import structures as s
import torch
from around import Around, found, targets, wide
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.structured.prepare import prepare


def test_an_embedding_loses_entries_of_its_rows() -> None:
    model = Around(nn.Embedding(10, 8), lambda x: x.mean(1), nn.Linear(8, 3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokens = torch.randint(10, (20, 5))
    with pytest.raises(BrainsurgeonError, match="no unit to remove"):  # no linear layer makes these units
        prepare(Surgery(model.double().eval(), (tokens, torch.zeros(20, 3).double()), "mse", progress=False), 20, 1)


@pytest.mark.parametrize(
    ("norm", "units", "axes"),
    [
        (nn.BatchNorm2d(8), 8, ["bias", "running_mean", "running_var", "weight"]),
        (nn.GroupNorm(2, 8), 2, ["bias", "weight"]),
    ],
    ids=["by channels", "by groups"],
)
def test_what_a_normalisation_stores_goes_with_its_channels(norm: nn.Module, units: int, axes: list[str]) -> None:
    model = Around(wide(), lambda x, n: n(x), nn.Conv2d(8, 3, 1), n=norm)
    inputs = s.images(20)[0]
    (group,) = found(model, targets(inputs, model.double()(inputs))).groups
    assert group.units == units
    assert sorted(name.rpartition(".")[2] for name, _ in group.places if ".n." in name) == axes
    assert group.places["others.n.weight", 0].flatten().tolist() == list(range(8))


def test_the_mean_of_a_normalisation_right_behind_a_layer_is_where_it_can_be_shifted() -> None:
    """Not where something else reads the layer, too."""
    inputs = s.images(20)[0]
    for between, shifted in ((lambda x, n: n(x), True), (lambda x, n: n(x) + x, False)):
        model = Around(nn.Conv2d(3, 8, 3, bias=False), between, nn.Conv2d(8, 3, 1), n=nn.BatchNorm2d(8))
        prepared = found(model, targets(inputs, model.double().eval()(inputs)))
        assert (prepared.intercepts().get("first.weight") == "others.n.running_mean") == shifted


def test_a_weight_that_is_stored_inputs_first_has_its_units_along_the_other_axis() -> None:
    model = Around(nn.Linear(6, 8), lambda x, w: torch.addmm(w.bias, x, w.weight), nn.Linear(5, 3), w=Turned(8, 5))
    inputs = s.vectors(20)[0]
    groups = {group.name: group for group in found(model, targets(inputs, model.double()(inputs))).groups}
    assert list(groups) == ["others.w"]  # no linear layer reads those of the first
    assert sorted(groups["others.w"].places) == [("last.weight", 1), ("others.w.bias", 0), ("others.w.weight", 1)]


class Turned(nn.Module):
    """Holds a weight inputs × outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(inputs, outputs)), nn.Parameter(torch.zeros(outputs))
