"""Groups are tried out: the smaller network must run, and do the same."""

from __future__ import annotations

import pytest
import structures as s
import torch
from shrinking import QUICK
from torch import nn

from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.structured.prepare import prepare
from brainsurgeon.structured.shrink import shrink
from brainsurgeon.structured.tracing import Call
from brainsurgeon.structured.trial import agree, numbers_after, stored_shapes, try_out


def test_a_width_that_stands_in_the_code_is_refused_by_name() -> None:
    result = shrink(s.seeded(s.HardCoded), s.vectors(), units=0.5, **QUICK)
    assert list(result.kept) == ["second"]
    assert "does not run" in result.left["first.weight"]


def test_outputs_agree_by_their_numbers_their_shapes_and_their_number() -> None:
    """A tolerance is a share of the largest entry; whole numbers are not compared."""
    one = {"a": torch.tensor([1000.0, 0.0]), "b": (torch.ones(2), 7)}
    assert agree(one, {"a": torch.tensor([1000.5, 0.5]), "b": (torch.ones(2), 8)})
    assert not agree(torch.tensor([1000.0, 0.0]), torch.tensor([1000.0, 1.5]))
    assert not agree(torch.ones(2), torch.ones(2, 1))
    assert not agree((torch.ones(2), torch.ones(2)), torch.ones(2))
    assert not agree(torch.tensor([torch.nan]), torch.ones(1))
    assert agree(torch.zeros(0, 3), torch.zeros(0, 3))
    masked = torch.tensor([1.0, -torch.inf])
    assert agree(masked, masked)
    assert not agree(masked, torch.tensor([1.0, torch.inf]))
    assert not agree(masked, torch.tensor([1.0, 0.0]))
    assert not agree(torch.tensor([2.0, -torch.inf]), masked)
    turned = torch.tensor([1 + 2j])
    assert agree({"a": [turned]}, {"a": [turned.clone()]})
    assert not agree({"a": [turned]}, {"a": [turned.conj()]})


class Gate(nn.Module):
    """Halves of one layer's outputs are read by two layers; `even` cuts them in halves, else at a fixed place."""

    def __init__(self, even: bool):
        super().__init__()
        self.even, self.first = even, nn.Linear(6, 16)
        self.value, self.gate, self.last = nn.Linear(8, 10), nn.Linear(8, 10), nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        halves = self.first(x).relu()
        one, other = halves.chunk(2, -1) if self.even else halves.split(8, -1)
        return self.last((self.value(one) * self.gate(other).sigmoid()).relu())


@pytest.mark.parametrize("target", [{"macs": 0.7}, {"units": 0.5}, {"parameters": 0.4}])
def test_halves_of_a_layer_lose_the_same_units(target: dict[str, float]) -> None:
    result = shrink(s.seeded(lambda: Gate(True)), s.vectors(), **target, **QUICK)
    assert sorted(result.kept) == ["first", "value"]
    assert result.model.get_submodule("first").out_features == 2 * len(result.kept["first"])
    for reader in ("value", "gate"):
        assert result.model.get_submodule(reader).in_features == len(result.kept["first"])
    assert result.parameters[1] == sum(p.numel() for p in result.model.parameters())


def test_what_is_cut_at_a_fixed_place_may_lose_units_behind_it() -> None:
    result = shrink(s.seeded(lambda: Gate(False)), s.vectors(), units=0.5, **QUICK)
    assert len(result.kept) == len(result.groups) == 2
    assert result.model.get_submodule("value").in_features == 8
    assert result.model.get_submodule("gate").in_features == 4


def test_numbers_of_modules_follow_what_each_group_keeps() -> None:
    numbers = [{("a", "heads"): 1, ("a", "width"): 4}, {}, {("b", "size"): 2}]
    assert numbers_after([], numbers, [3, 9, 5]) == {("a", "heads"): 3, ("a", "width"): 12, ("b", "size"): 10}


def test_shapes_are_known_by_every_name_of_a_tensor() -> None:
    model = s.seeded(s.Tied)
    assert stored_shapes(model)["second.weight"] == stored_shapes(model)["first.weight"] == (6, 6)
    assert stored_shapes(nn.BatchNorm1d(5))["running_mean"] == (5,)


def test_a_head_count_that_a_module_holds_is_found_by_trying() -> None:
    model, call = s.seeded(s.VisionTransformer), Call((s.images(2)[0],), {})
    prepared = prepare(Surgery(model, s.images(), progress=False), 8, 1)
    groups, numbers, refused = try_out(model, call, prepared.groups, prepared.axes)
    assert dict(zip([group.name for group in groups], numbers, strict=True)) == {
        "attention.qkv": {("attention", "num_heads"): 1},
        "gate": {},
    }
    assert not refused
