"""Units removed: the smaller network is the large one without them."""

from __future__ import annotations

import copy

import pytest
import structures as s
import torch
from shrinking import CASES
from torch import nn

from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.structured.attention import open_attention
from brainsurgeon.structured.groups import Group
from brainsurgeon.structured.remove import Cuts, cuts_of, remove, silence
from brainsurgeon.structured.trial import numbers_after, stored_shapes


@pytest.mark.parametrize("case", CASES)
def test_the_smaller_network_is_the_large_one_without_the_units(case: str) -> None:
    """In double precision, to 1e-10: with what reads the units at zero, and no weight fitted anew."""
    from brainsurgeon.pruning.surgery import Surgery
    from brainsurgeon.structured.prepare import prepare

    build, data, loss = CASES[case]
    model = s.seeded(build)
    open_attention(model)
    prepared = prepare(Surgery(model, data, loss, progress=False), 40, 1)
    generator = torch.Generator().manual_seed(3)
    removed = [torch.rand(group.units, generator=generator) < 0.5 for group in prepared.groups]
    for gone in removed:
        gone[0] = False
    numbers = numbers_after(prepared.groups, prepared.numbers, [int((~gone).sum()) for gone in removed])
    cuts = cuts_of(prepared.groups, removed, stored_shapes(model), numbers)
    small = remove(copy.deepcopy(model), cuts)
    large = silence(copy.deepcopy(model), prepared.groups, removed, prepared.axes)
    with torch.no_grad():
        torch.testing.assert_close(small(data[0]), large(data[0]), rtol=1e-10, atol=1e-10)
        assert not torch.allclose(large(data[0]), model(data[0]))
    kept = [int((~gone).sum()) for gone in removed]
    assert sum(p.numel() for p in small.parameters()) == prepared.parameters.count(kept)
    assert count_multiply_adds(small, data[0][:2], {})[0] == prepared.multiply_adds.count(kept)


def test_modules_are_told_their_new_sizes() -> None:
    """They print and work as if they had been made so."""
    model = nn.ModuleDict(
        {
            "linear": nn.Linear(4, 6),
            "conv": nn.Conv2d(6, 8, 3, groups=2),
            "up": nn.ConvTranspose2d(4, 6, 2),
            "norm": nn.GroupNorm(4, 8),
            "batch": nn.BatchNorm1d(5, affine=False),
            "table": nn.Embedding(7, 4),
            "slope": nn.PReLU(4),
        }
    )
    first = torch.tensor([0, 1])
    kept = {("linear.weight", 0): first, ("linear.bias", 0): first, ("conv.weight", 0): torch.arange(4)}
    kept |= {("conv.bias", 0): torch.arange(4), ("up.weight", 1): first, ("up.bias", 0): first}
    kept |= {("norm.weight", 0): torch.arange(2, 6), ("norm.bias", 0): torch.arange(2, 6)}
    kept |= {("batch.running_mean", 0): first, ("batch.running_var", 0): first}
    kept |= {("table.weight", 1): first, ("slope.weight", 0): first}
    wanted = model["norm"].weight.detach()[2:6].clone()
    remove(model, Cuts(kept, {("batch", "momentum"): 3}))
    assert (model["linear"].out_features, model["linear"].in_features) == (2, 4)
    assert (model["conv"].out_channels, model["conv"].in_channels, model["conv"].groups) == (4, 3, 1)
    assert (model["up"].out_channels, model["up"].in_channels) == (2, 4)
    assert (model["norm"].num_channels, model["norm"].num_groups) == (4, 2)
    assert torch.equal(model["norm"].weight, wanted)
    assert (model["batch"].num_features, model["batch"].momentum) == (2, 3)
    assert (model["table"].embedding_dim, model["slope"].num_parameters) == (2, 2)
    assert model["conv"](torch.ones(1, 3, 5, 5)).shape == (1, 4, 3, 3)


def test_an_axis_that_loses_nothing_is_not_cut_and_two_groups_share_one() -> None:
    one = Group("a", 2, {("w", 0): torch.tensor([[0, 1], [2, 3]]), ("v", 1): torch.tensor([[0], [1]])}, (), (), ())
    two = Group("b", 2, {("w", 0): torch.tensor([[4], [5]])}, (), (), ())
    sizes = {"w": torch.Size([6]), "v": torch.Size([3, 2])}
    gone, none = torch.tensor([False, True]), torch.tensor([False, False])
    cuts = cuts_of([one, two], [gone, gone], sizes)
    assert {axis: kept.tolist() for axis, kept in cuts.kept.items()} == {("w", 0): [0, 1, 4], ("v", 1): [0]}
    assert list(cuts_of([one, two], [none, gone], sizes).kept) == [("w", 0)]


def test_what_reads_a_silenced_unit_is_zero_and_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    before = model[1].weight.detach().clone()
    group = Group("0", 4, {("1.weight", 1): torch.arange(4).unsqueeze(1)}, ("0.weight",), ("1.weight",), ())
    silence(model, [group], [torch.tensor([True, False, False, True])], {"1.weight": 1})
    assert not model[1].weight[:, [0, 3]].any()
    assert torch.equal(model[1].weight[:, 1:3], before[:, 1:3])
