"""Hugging Face transformers through the command, from end to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from brainsurgeon.app.cli import main
from brainsurgeon.app.target import load_target
from brainsurgeon.files.checkpoint import load_checkpoint

pytest.importorskip("transformers")
FILE = Path(__file__).with_name("transformer.py")
QUICK = ["-k", "40", "--set", "loss_samples=64", "--set", "num_draws=8", "-q"]


@pytest.mark.parametrize("kind", ["classifier", "language_model"])
def test_a_transformer_is_inspected_pruned_and_loaded_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    target = f"{FILE}:{kind}"
    left_alone = "*embeddings*" if kind == "classifier" else "*wpe*"
    arguments = [target, "-m", "cbs", "-s", "0.6", "--exclude", left_alone]
    assert main(["inspect", *arguments, "-k", "40"]) == 0
    assert "attention" in capsys.readouterr().out.replace("attn", "attention")
    assert main(["prune", *arguments, *QUICK, "-o", "run"]) == 0
    assert "weights pruned" in capsys.readouterr().out
    record = json.loads(Path("run/result/result.json").read_text())
    measured = json.loads(Path("run/result/measured.json").read_text())
    assert ("accuracy" in measured["scores"]) == (kind == "classifier")
    masks = load_file("run/result/masks.safetensors")
    assert sum(int(mask.sum()) for mask in masks.values()) == record["pruned"] == -(-record["size"] * 6 // 10)
    fresh = load_target(target).model
    load_checkpoint(fresh, "run/result/model.safetensors")
    for name, mask in masks.items():
        assert bool((fresh.get_parameter(name)[mask] == 0).all())
        assert "embeddings" not in name
    if kind == "language_model":  # the output layer is the embedding itself: counted once, and pruned once
        assert "lm_head.weight" not in masks
        assert torch.equal(fresh.lm_head.weight, fresh.transformer.wte.weight)
    assert "transformers" in sys.modules
