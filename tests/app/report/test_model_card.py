"""The model card of a pruned Hugging Face model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from brainsurgeon import BrainsurgeonError
from brainsurgeon.export import save_pretrained


class TinyForSequenceClassification(nn.Module):
    """As much of a Hugging Face model as the export uses."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 3)
        self.config = type("Config", (), {"model_type": "tiny", "_name_or_path": "someone/tiny-model"})()

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(b"0" * 1234)


@pytest.fixture
def model() -> TinyForSequenceClassification:
    made = TinyForSequenceClassification()
    with torch.no_grad():
        made.dense.weight[:, :3] = 0
    return made


def card(model: nn.Module, folder: Path, record: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    text = (save_pretrained(model, folder, record=record) / "README.md").read_text()
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


def test_the_header_and_the_counts(model: nn.Module, tmp_path: Path) -> None:
    header, body = card(model, tmp_path / "out")
    assert header == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "base_model": "someone/tiny-model",
        "tags": ["pruning", "sparsity", "brainsurgeon", "tiny"],
    }
    assert "9 of 12 (75.00%)" in body
    assert "15, 6 of them not pruned" in body
    assert "| bytes on disk | 1,234 |" in body
    assert "| <code>dense.weight</code> | 3×4 | 9 | 12 |" in body
    assert 'TinyForSequenceClassification.from_pretrained("path/to/this/folder")' in body
    assert "Scores" not in body
    assert "Recipe" not in body


def test_what_the_record_tells_is_told(model: nn.Module, tmp_path: Path) -> None:
    record = {
        "method": "cbs|*[x](y)",
        "scores": {"accuracy": 91.25, "loss": None},
        "settings": {"num_gradients": 10},
        "recipe": "method: cbs\nnote: ```\n",
    }
    _, body = card(model, tmp_path / "a", record)
    assert "| method | <code>cbs&#124;&#42;&#91;x&#93;(y)</code> |" in body
    assert "| <code>accuracy</code> | 91.25 |" in body
    assert "| <code>loss</code> | not finite |" in body
    assert "````yaml\nmethod: cbs\nnote: ```\n````" in body
    assert json.loads((tmp_path / "a" / "pruning.json").read_text())["method"] == record["method"]
    tuned = {"settings": {"k": 1}, "scores": {"accuracy": 1.0}, "finetuned": {"after": {"accuracy": 92.5}}}
    _, body = card(model, tmp_path / "b", tuned)
    assert "| <code>accuracy</code> | 92.5 |" in body
    assert '```json\n{\n  "k": 1\n}\n```' in body


@pytest.mark.parametrize("base", [None, "", "/home/someone/model", "a/b/c", 3, "../x/y"])
def test_a_local_path_is_no_base_model(model: Any, tmp_path: Path, base: Any) -> None:
    model.config._name_or_path = base
    assert "base_model" not in card(model, tmp_path / "out")[0]


def test_a_card_that_is_there_is_not_overwritten(model: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(BrainsurgeonError, match="is there already, where the model card would go"):
        save_pretrained(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
