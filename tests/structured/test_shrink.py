"""Shrinking from end to end, over every structure: shapes by running, exactness by a masked twin, counts, errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import structures as s
import torch
from torch import nn

import brainsurgeon
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.modes import plain_attention
from brainsurgeon.structured.attention import Attention, open_attention
from brainsurgeon.structured.remove import cuts_of, remove, silence
from brainsurgeon.structured.shrink import shrink
from brainsurgeon.structured.trial import numbers_after, stored_shapes

CASES: dict[str, tuple[type[nn.Module], Any, str]] = {
    "perceptron": (s.Perceptron, s.vectors(), "cross_entropy"),
    "residual": (s.Residual, s.images(), "cross_entropy"),
    "separable": (s.Separable, s.images(), "cross_entropy"),
    "unet": (s.UNet, (s.images()[0], s.images()[0]), "mse"),
    "vision": (s.VisionTransformer, s.images(), "cross_entropy"),
    "shared keys": (s.SharedKeys, s.sequences(), "cross_entropy"),
    "encoder": (s.Encoder, s.sequences(width=8), "cross_entropy"),
    "recurrent": (s.Recurrent, s.sequences(), "cross_entropy"),
}
GROUPS = {
    "perceptron": {"first": 12, "second": 8},
    "residual": {"stem": 4, "inner": 6, "mix": 2},
    "separable": {"stem": 8, "point": 12},
    "unet": {"down": 8, "low": 10, "up": 6},
    "vision": {"attention.qkv": 6, "gate": 10},
    "shared keys": {"q": 2},
    "encoder": {"layer.self_attn.query": 4, "layer.linear1": 16},
    "recurrent": {"middle": 10},
}
QUICK: dict[str, Any] = {"progress": False, "seconds": 0}


def shrunk(case: str, **settings: Any) -> brainsurgeon.ShrinkResult:
    build, data, loss = CASES[case]
    return shrink(s.seeded(build), data, loss=loss, **{**QUICK, **settings})


@pytest.mark.parametrize("case", CASES)
def test_half_the_units_of_every_group_go(case: str) -> None:
    result = shrunk(case, units=0.5)
    assert {group.name: group.units for group in result.groups} == GROUPS[case]
    assert {name: len(kept) for name, kept in result.kept.items()} == {n: c // 2 for n, c in GROUPS[case].items()}
    inputs = CASES[case][1][0][:3]
    with torch.no_grad():
        assert result.model(inputs).shape == s.seeded(CASES[case][0])(inputs).shape
    found = sum(parameter.numel() for parameter in result.model.parameters())
    assert found == result.parameters[1] < result.parameters[0]
    assert count_multiply_adds(result.model, inputs[:1], {})[0] == result.multiply_adds[1] < result.multiply_adds[0]


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


@pytest.mark.parametrize("case", ["residual", "vision", "encoder"])
@pytest.mark.parametrize("target", ["macs", "parameters"])
def test_the_target_is_met_and_no_unit_could_come_back(case: str, target: str) -> None:
    result = shrunk(case, **{target: 0.6}, least=0.0)
    pair = result.multiply_adds if target == "macs" else result.parameters
    assert pair[1] <= 0.6 * pair[0]
    assert any(len(group.kept) < group.units for group in result.groups)


def test_the_fit_brings_the_outputs_nearer_and_the_loss_down() -> None:
    plain, fitted = (shrunk("residual", units=0.5, fit=fit) for fit in (False, True))
    assert plain.kept == fitted.kept
    inputs = CASES["residual"][1][0]
    with torch.no_grad():
        wanted = s.seeded(s.Residual)(inputs)
        errors = [float((one.model(inputs) - wanted).square().mean()) for one in (plain, fitted)]
    assert errors[1] < 0.7 * errors[0]


def test_a_unit_that_says_nothing_goes_first_and_costs_nothing() -> None:
    """Copies of another unit, and units that are constant, are made up for by the others and by the bias."""
    model, data = s.seeded(s.Perceptron), s.vectors(400)
    with torch.no_grad():
        model.first.weight[3], model.first.bias[3] = model.first.weight[0], model.first.bias[0]
        model.first.weight[5], model.first.bias[5] = 0.0, 2.0
    result = shrink(model, data, units=10 / 12, include="first", damping=1e-9, **QUICK)
    assert set(range(12)) - set(result.kept["first"]) in ({3, 5}, {0, 5})
    with torch.no_grad():
        torch.testing.assert_close(result.model(data[0]), model(data[0]), rtol=1e-4, atol=1e-4)


def test_the_given_model_is_left_alone_and_the_result_is_as_it_was() -> None:
    model = s.seeded(s.Encoder)
    model.layer.linear1.bias.requires_grad_(False)
    model.train()
    model.layer.eval()
    before = copy.deepcopy(model.state_dict())
    result = shrink(model, s.sequences(width=8), units=0.5, **QUICK)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert isinstance(model.layer.self_attn, nn.MultiheadAttention)
    assert not result.model.layer.linear1.bias.requires_grad
    assert result.model.layer.linear1.weight.requires_grad
    assert result.model.training
    assert not result.model.layer.training


def test_attention_that_loses_no_head_is_pytorchs_own_again() -> None:
    data = s.sequences(width=8)
    result = shrink(s.seeded(s.Encoder), data, units=0.5, exclude="layer.self_attn", **QUICK)
    assert type(result.model.layer.self_attn) is nn.MultiheadAttention
    assert list(result.kept) == ["layer.linear1"]
    fewer = shrink(s.seeded(s.Encoder), data, units=0.5, **QUICK)
    attention = fewer.model.layer.self_attn
    assert isinstance(attention, Attention)
    assert (attention.num_heads, attention.query.out_features, attention.out_proj.in_features) == (2, 4, 4)
    with torch.no_grad(), plain_attention():
        assert torch.isfinite(fewer.model(data[0])).all()


def test_the_same_seed_gives_the_same_network() -> None:
    data = s.vectors(200)
    first, again, other = (
        shrink(s.seeded(s.Perceptron), data, macs=0.5, seed=seed, max_samples=50, **QUICK) for seed in (1, 1, 2)
    )
    state, same, differs = (one.model.state_dict() for one in (first, again, other))
    assert all(torch.equal(state[name], same[name]) for name in state)
    assert first.kept == again.kept
    assert any(
        state[name].shape != differs[name].shape or not torch.equal(state[name], differs[name]) for name in state
    )


def test_kept_counts_are_multiples_where_units_go() -> None:
    result = shrunk("residual", macs=0.7, multiple=2)
    assert all(len(group.kept) == group.units or len(group.kept) % 2 == 0 for group in result.groups)


def test_every_group_keeps_the_least_share() -> None:
    result = shrunk("perceptron", macs=0.6, least=0.5)
    assert all(len(group.kept) >= 0.5 * group.units for group in result.groups)


def test_time_is_measured_where_it_is_asked_for() -> None:
    result = shrunk("perceptron", macs=0.5, seconds=0.01)
    assert result.milliseconds is not None
    assert result.speed_up == result.milliseconds[0] / result.milliseconds[1]
    assert "times the speed" in result.summary()
    assert shrunk("perceptron", macs=0.5).speed_up is None


def test_the_summary_names_groups_and_what_is_left_alone() -> None:
    text = shrunk("recurrent", units=0.5).summary()
    assert "middle" in text
    assert "left alone: lstm.weight_ih_l0: aten.lstm.input cannot be followed" in text
    assert "left alone: enter.weight: aten.lstm.input cannot be followed" in text


def test_what_include_asks_for_and_cannot_go_is_refused_by_name() -> None:
    with pytest.raises(BrainsurgeonError, match=r"enter\.weight: aten\.lstm\.input cannot be followed"):
        shrunk("recurrent", units=0.5, include=["enter", "middle"])
    with pytest.raises(BrainsurgeonError, match="no unit to remove"):
        shrunk("perceptron", units=0.5, include="last")


def test_a_tied_weight_is_refused_by_name() -> None:
    result = shrink(s.seeded(s.Tied), s.vectors(classes=6), units=0.5, **QUICK)
    assert list(result.kept) == ["third"]
    assert "is tied to another weight" in result.left["first.weight"]


def test_a_width_that_stands_in_the_code_is_refused_by_name() -> None:
    result = shrink(s.seeded(s.HardCoded), s.vectors(), units=0.5, **QUICK)
    assert list(result.kept) == ["second"]
    assert "does not run" in result.left["first.weight"]


def test_a_target_out_of_reach_is_refused_with_the_reason() -> None:
    with pytest.raises(BrainsurgeonError, match="the smallest network that the groups allow"):
        shrunk("perceptron", macs=0.05, least=0.9)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "give one target"),
        ({"macs": 0.5, "units": 0.5}, "give one target"),
        ({"macs": 1.5}, "shares between 0 and 1"),
        ({"macs": "half"}, "macs must be a number"),
        ({"macs": 0.5, "multiple": 0}, "multiple must be a whole number"),
        ({"macs": 0.5, "damping": 0.0}, "damping positive"),
        ({"macs": 0.5, "sparsity": 0.5}, "shrink has no setting 'sparsity'"),
    ],
)
def test_bad_settings_are_refused_before_any_work(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(BrainsurgeonError, match=match):
        shrink(nn.Linear(2, 2), None, **settings)


def test_a_network_that_cannot_be_traced_is_refused_by_name() -> None:
    class Branching(s.Perceptron):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if float(x.sum()) > 0 else super().forward(-x)

    with pytest.raises(BrainsurgeonError, match="cannot trace Branching"):
        shrink(s.seeded(Branching), s.vectors(), units=0.5, **QUICK)


def test_a_bad_sample_is_named() -> None:
    inputs, labels = s.vectors()
    inputs[7] = torch.nan
    with pytest.raises(BrainsurgeonError, match="7"):
        shrink(s.seeded(s.Perceptron), (inputs, labels), units=0.5, **QUICK)


def test_no_samples_are_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="give data"):
        shrink(s.seeded(s.Perceptron), None, units=0.5, **QUICK)


def test_a_shrunk_network_is_fine_tuned_without_masks() -> None:
    result = shrunk("residual", units=0.5)
    tuned = brainsurgeon.finetune(result.model, CASES["residual"][1], masks={}, epochs=2, batch_size=10, progress=False)
    assert tuned.pruned == 0
    assert len(tuned.epochs) == 2
    assert tuned.model.inner.weight.shape == result.model.inner.weight.shape
