"""What is multiplied head by head goes head by head."""

from __future__ import annotations

import pytest
import structures as s
import torch
from around import Around, found, targets
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.structured.prepare import prepare


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_language_models_lose_heads_and_hidden_units(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    common = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
    if kind == "llama":
        sizes = {"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4}
        config = transformers.LlamaConfig(**common, **sizes, num_key_value_heads=2)
        model, expected = transformers.LlamaForCausalLM(config), {"self_attn.q_proj": 2, "mlp.gate_proj": 12}
    else:
        config = transformers.GPT2Config(**common, n_embd=16, n_layer=1, n_head=4, n_positions=16, n_inner=12)
        model, expected = transformers.GPT2LMHeadModel(config), {"attn.c_attn": 4, "mlp.c_fc": 12}
    tokens = torch.randint(50, (12, 8), generator=torch.Generator().manual_seed(0))
    prepared = prepare(Surgery(model.eval(), tokens, "next_token", progress=False), 12, 1)
    assert {".".join(g.name.split(".")[-2:]): g.units for g in prepared.groups} == expected
    attributes = {name for numbers in prepared.numbers for _, name in numbers}
    assert attributes == (set() if kind == "llama" else {"split_size"})


def heads(x: Tensor, mixed: nn.Module, fused: bool) -> Tensor:
    """Attention of four heads, by hand or by PyTorch."""
    q, k, v = (part.unflatten(-1, (-1, 2)).transpose(1, 2) for part in mixed(x).chunk(3, -1))
    if fused:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        out = (q @ k.transpose(-2, -1)).softmax(-1) @ v
    return out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("fused", [False, True])
def test_a_product_of_two_activations_goes_head_by_head(fused: bool) -> None:
    """A unit is a head: its rows of queries, keys and values, and its columns of what reads them."""
    model = Around(nn.Linear(6, 6), lambda x, m: heads(x, m, fused), nn.Linear(8, 3), m=nn.Linear(6, 24))
    inputs = s.sequences(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    (group,) = [one for one in prepared.groups if one.name == "others.m"]
    assert group.units == 4
    assert group.places["others.m.weight", 0][1].tolist() == [2, 3, 10, 11, 18, 19]
    assert group.places["last.weight", 1].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_units_stay_single_where_the_other_matrix_has_none() -> None:
    """A product with constants over positions leaves the channels alone."""
    fixed = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = Around(nn.Linear(6, 8), lambda x: fixed @ x, nn.Linear(8, 3))
    inputs = s.sequences(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units) for group in prepared.groups] == [("first", 8)]
