"""Attention with its heads apart gives what PyTorch's own gives, however it is called."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import structures
import torch
from torch import nn

from brainsurgeon.structured.attention import Attention, close_attention, closed, open_attention, opened


def make(**settings: Any) -> nn.MultiheadAttention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.MultiheadAttention(8, 4, **settings).double().eval()


def masks(queries: int, keys: int) -> dict[str, dict[str, Any]]:
    hidden = torch.triu(torch.ones(queries, keys, dtype=torch.bool), 1)
    padding = torch.zeros(3, keys, dtype=torch.bool)
    padding[0, -1] = True
    each = torch.randn(3 * 4, queries, keys, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return {
        "none": {},
        "one": {"attn_mask": hidden},
        "padding": {"key_padding_mask": padding},
        "both": {"attn_mask": hidden, "key_padding_mask": padding},
        "of each head": {"attn_mask": each},
    }


@pytest.mark.parametrize("kind", masks(5, 5))
@pytest.mark.parametrize("settings", [{}, {"batch_first": True}, {"bias": False}, {"kdim": 6, "vdim": 10}], ids=str)
def test_it_gives_the_same_with_and_without_weights(settings: dict[str, Any], kind: str) -> None:
    module = make(**settings)
    other = opened(module)
    generator = torch.Generator().manual_seed(1)
    widths = (8, settings.get("kdim", 8), settings.get("vdim", 8))
    inputs = [torch.randn(5, 3, width, generator=generator, dtype=torch.float64) for width in widths]
    inputs = [x.transpose(0, 1) for x in inputs] if settings.get("batch_first") else inputs
    for need in (True, False):
        with torch.no_grad():
            expected = module(*inputs, need_weights=need, **masks(5, 5)[kind])
            found = other(*inputs, need_weights=need, **masks(5, 5)[kind])
        torch.testing.assert_close(found[0], expected[0], rtol=1e-10, atol=1e-12)
        assert (found[1] is None) == (expected[1] is None)
        if need:
            torch.testing.assert_close(found[1], expected[1], rtol=1e-10, atol=1e-12)


def test_a_single_sequence_and_the_weights_of_each_head() -> None:
    module = make()
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        for found, expected in zip(opened(module)(x, x, x), module(x, x, x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        heads = opened(module)(x, x, x, average_attn_weights=False)[1]
        torch.testing.assert_close(heads, module(x, x, x, average_attn_weights=False)[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"kdim": 6, "vdim": 10}], ids=str)
def test_closed_again_it_is_what_it_was(settings: dict[str, Any]) -> None:
    module = make(**settings)
    again = closed(opened(module), module)
    for name, tensor in module.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_all_of_a_model_are_opened_but_those_with_keys_of_their_own() -> None:
    model = nn.ModuleDict({"plain": make(), "own": make(add_bias_kv=True)})
    original = nn.ModuleDict(dict(model.items()))
    left = open_attention(model)
    assert isinstance(model["plain"], Attention)
    assert list(left) == ["own"]
    assert "a key and a value of its own" in left["own"]
    close_attention(model, original)
    assert type(model["plain"]) is nn.MultiheadAttention


def test_one_that_has_several_places_stays_one() -> None:
    shared = make()
    model = nn.ModuleDict({"one": shared, "other": nn.ModuleDict({"inner": shared})})
    original = copy.deepcopy(model)
    open_attention(model)
    assert isinstance(model["one"], Attention)
    assert model["one"] is model.get_submodule("other.inner")
    close_attention(model, original)
    assert type(model["one"]) is nn.MultiheadAttention
    assert model["one"] is model.get_submodule("other.inner")


def test_nested_tensors_are_left_alone_as_long_as_a_layer_is_not_pytorchs_own() -> None:
    original = structures.Padded().eval()
    model = copy.deepcopy(original)
    open_attention(model)
    assert not model.encoder.use_nested_tensor
    close_attention(model, original)
    assert model.encoder.use_nested_tensor
    open_attention(model)
    model.encoder.layers[1].self_attn.query = nn.Linear(16, 8)  # as if two of its four heads were gone
    close_attention(model, original)
    assert not model.encoder.use_nested_tensor
