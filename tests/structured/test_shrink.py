"""Shrinking from end to end, over every structure: shapes by running, exactness by a masked twin, counts, errors."""

from __future__ import annotations

import copy

import pytest
import structures as s
import torch
from shrinking import CASES, GROUPS, QUICK, shrunk
from torch import nn

import brainsurgeon
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import clock
from brainsurgeon.network.modes import plain_attention
from brainsurgeon.structured.attention import Attention
from brainsurgeon.structured.shrink import shrink


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


@pytest.mark.parametrize("case", ["residual", "vision", "encoder"])
@pytest.mark.parametrize("target", ["macs", "parameters"])
def test_the_target_is_met_and_no_unit_could_come_back(case: str, target: str) -> None:
    result = shrunk(case, **{target: 0.6}, least=0.0)
    pair = result.multiply_adds if target == "macs" else result.parameters
    assert pair[1] <= 0.6 * pair[0]
    assert any(len(group.kept) < group.units for group in result.groups)


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


def test_a_target_out_of_reach_is_refused_with_the_reason() -> None:
    with pytest.raises(BrainsurgeonError, match="the smallest network that the groups allow"):
        shrunk("perceptron", macs=0.05, least=0.9)


def test_a_shrunk_network_is_fine_tuned_without_masks() -> None:
    result = shrunk("residual", units=0.5)
    tuned = brainsurgeon.finetune(result.model, CASES["residual"][1], masks={}, epochs=2, batch_size=10, progress=False)
    assert tuned.pruned == 0
    assert len(tuned.epochs) == 2
    assert tuned.model.inner.weight.shape == result.model.inner.weight.shape


def test_long_work_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "PULSE", 0.0)
    told: list[str] = []
    shrunk("perceptron", units=0.5, callback=lambda event: told.append(event.values.get("step", "")))
    assert {"prices", "choice"} <= set(told)  # each unit that goes, and each swap
