"""A pruned Hugging Face model in a folder that `from_pretrained` reads."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from brainsurgeon import BrainsurgeonError, load_masks, prune
from brainsurgeon.export import save_pretrained, to_onnx
from brainsurgeon.network.zeros import count_zeros


def test_the_folder_is_read_by_from_pretrained(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).eval()
    generator = torch.Generator().manual_seed(0)
    batch = {
        "input_ids": torch.randint(50, (6, 8), generator=generator),
        "labels": torch.randint(3, (6,), generator=generator),
    }
    result = prune(model, batch, 0.7, "mp", "model", num_gradients=1, progress=False)
    folder = save_pretrained(result.model, tmp_path / "bert", result.masks, {"method": "mp"})
    loaded = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    masks = load_masks(folder / "pruning_masks.safetensors", loaded)
    assert count_zeros(loaded, masks) == result.pruned
    assert json.loads((folder / "pruning.json").read_text())["pruned"] == result.pruned
    with torch.no_grad():
        assert torch.equal(loaded(**batch).logits, result.model.eval()(**batch).logits)


def test_a_transformer_is_exported_to_onnx_with_its_inputs_by_name(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("onnxscript", reason="needs brainsurgeon[onnx]")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    model = transformers.BertForSequenceClassification(config).eval()
    generator = torch.Generator().manual_seed(0)
    batch = {
        "input_ids": torch.randint(50, (3, 8), generator=generator),
        "attention_mask": torch.ones(3, 8, dtype=torch.long),
    }
    labelled = {**batch, "labels": torch.randint(2, (3,), generator=generator)}
    result = prune(model, labelled, 0.7, "mp", "model", num_gradients=1, progress=False)
    exported = to_onnx(result.model, batch, tmp_path / "bert.onnx")
    assert exported.difference < 1e-4
    assert exported.zeros > 0.6 * exported.weights  # positions that an example does not use are folded away


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BrainsurgeonError, match=r"no save_pretrained.*use brainsurgeon\.save"):
        save_pretrained(nn.Linear(2, 2), tmp_path)
