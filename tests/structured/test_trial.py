"""Groups are tried out: the smaller network must run, and do the same."""

from __future__ import annotations

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
