"""`brainsurgeon export`: every form, read back."""

from pathlib import Path

import pytest
import torch
from commands import Run
from safetensors.torch import load_file

from brainsurgeon import PruningResult, load_masks
from brainsurgeon.export import load_csr
from brainsurgeon.files import read
from brainsurgeon.files.checkpoint import read_state_dict
from brainsurgeon.paper.datasets.embedded import load_demo


@pytest.mark.parametrize("form", ["dense", "compressed"])
def test_export_our_own_files(saved: Path, run: Run, tmp_path: Path, form: str) -> None:
    run("export", saved, form, tmp_path / "out", "-t", "demo")
    assert PruningResult.load(tmp_path / "out", load_demo()[0]).pruned == 30_742


def test_export_masks_and_rows(saved: Path, run: Run, tmp_path: Path) -> None:
    run("export", saved, "masks", tmp_path / "masks", "-t", "demo")
    assert sum(int(mask.sum()) for mask in load_masks(tmp_path / "masks", load_demo()[0]).values()) == 30_742
    run("export", saved, "csr", tmp_path / "rows", "-t", "demo")
    assert sum(len(rows.values()) for rows in load_csr(tmp_path / "rows").values()) == 1618


def test_export_for_torch_prune(saved: Path, run: Run, tmp_path: Path) -> None:
    run("export", saved, "torch-prune", tmp_path / "state.safetensors", "-t", "demo")
    names = load_file(tmp_path / "state.safetensors").keys()
    assert {"fc1.weight_orig", "fc1.weight_mask"} <= names
    assert torch.equal(read_state_dict(tmp_path / "state.safetensors")["fc1.weight"], read(saved).state["fc1.weight"])


def test_export_onnx_is_checked(saved: Path, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="needs brainsurgeon[onnx]")
    told = run("export", saved, "onnx", tmp_path / "model.onnx", "-t", "demo")
    assert "onnxruntime differs by" in told
    assert "30,742 zeros in the file" in told
    assert "is there already" in run("export", saved, "onnx", tmp_path / "model.onnx", "-t", "demo", status=1)


def test_a_model_without_save_pretrained_is_told_so(saved: Path, run: Run, tmp_path: Path) -> None:
    assert "no save_pretrained" in run("export", saved, "huggingface", tmp_path / "hf", "-t", "demo", status=1)
