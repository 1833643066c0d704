"""Exports and costs of encoder layers, language models with a cache, and outputs that are not finite."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.cost import worth
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.export import to_onnx, to_sparse_modules, to_torch_prune
from brainsurgeon.export.onnx import _difference


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(16, 3)).eval()


def test_encoder_layers_compute_with_sparse_weights() -> None:
    result = brainsurgeon.prune(encoder(), None, 0.5, "mp")
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    sparse, changed = to_sparse_modules(result.model, result.masks)
    assert "0.layers.0.linear1" in changed
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(sparse(x), result.model(x), rtol=1e-4, atol=1e-5)
    found = worth(result.model, x, result.masks, seconds=0.01)
    assert all(latency.milliseconds for latency in found.latencies)


def test_multiply_adds_of_encoder_layers_are_counted() -> None:
    """A layer of width d with a feed-forward of f has 4d² + 2df products a token, beside the attention itself."""
    result = brainsurgeon.prune(encoder(), None, 0.5, "mp")
    total, sparse = count_multiply_adds(result.model, torch.randn(2, 5, 16), result.masks)
    assert total >= 2 * 5 * (2 * (4 * 16 * 16 + 2 * 16 * 32) + 16 * 3)
    assert sparse < total


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_language_model_with_a_cache_goes_to_onnx(tmp_path: Path, dynamic: bool) -> None:
    pytest.importorskip("onnxruntime")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = brainsurgeon.prune(transformers.GPT2LMHeadModel(config).eval(), None, 0.5, "mp").model
    found = to_onnx(model, {"input_ids": torch.arange(16).reshape(2, 8)}, tmp_path / "m.onnx", dynamic_batch=dynamic)
    assert found.difference < 1e-4
    assert model.config.use_cache


def test_a_failed_export_tells_its_cause_without_colours(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")

    class Odd(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return {"output": super().forward(x), "other": object()}

    with pytest.raises(BrainsurgeonError, match="cannot export Odd to ONNX") as told:
        to_onnx(Odd(3, 2), torch.randn(2, 3), tmp_path / "m.onnx")
    assert "\x1b" not in str(told.value)
    assert "object" in str(told.value)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 2.2], 0.1),
        ([1.0, 2.0], [1.0, math.nan], math.inf),
        ([1.0, math.nan], [1.0, math.nan], math.inf),
        ([1.0, -math.inf], [1.0, -math.inf], 0.0),
        ([1.0, -math.inf], [1.0, math.inf], math.inf),
        ([1.0, math.inf], [1.0, 5.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_no_output_that_is_not_finite_passes_for_equal(one: list[float], other: list[float], expected: float) -> None:
    assert _difference(torch.tensor(one).double(), torch.tensor(other).double()) == pytest.approx(expected)


def test_a_module_of_two_names_takes_its_mask_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model.add_module("again", model[0])
    masks = brainsurgeon.prune(model, None, 0.5, "mp").masks
    to_torch_prune(model, masks)
    assert int((model[0].weight == 0).sum()) == 8
