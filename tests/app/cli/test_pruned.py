"""The commands that use a pruned model: evaluate, export, finetune."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from brainsurgeon import PruningResult, load_masks, prune, save
from brainsurgeon.app.cli import main
from brainsurgeon.export import load_csr
from brainsurgeon.files import read
from brainsurgeon.files.checkpoint import read_state_dict
from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.training import finetune as finetune_module

Run = Callable[..., str]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, data = load_demo()
    result = prune(model, data.train(), 0.95, "mp", progress=False)
    return result.save(tmp_path_factory.mktemp("pruned") / "mp")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object, status: int = 0) -> str:
        found = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert found == status, err
        return out if status == 0 else err

    return call


def test_evaluate_tells_scores_and_worth(saved: Path, run: Run, tmp_path: Path) -> None:
    told = run("evaluate", saved, "-t", "demo", "--seconds", 0.01, "--json", tmp_path / "worth.json")
    for words in ("accuracy", "32,360, 1,618 of them not zero", "multiply-adds", "torch-csr", "times the speed"):
        assert words in told
    record = json.loads((tmp_path / "worth.json").read_text())
    assert record["nonzero"] == 1618
    assert record["multiply_adds_sparse"] == 1618


def test_finetune_notices_an_unwritable_output_before_it_begins(
    saved: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetune_module, "finetune", lambda *_, **__: pytest.fail("it was trained"))
    (tmp_path / "file").write_text("")
    assert "cannot write to" in run("finetune", saved, "-t", "demo", "-o", tmp_path / "file" / "tuned", status=1)
    assert (tmp_path / "file").read_text() == ""


def test_finetune_keeps_the_count_and_gains_accuracy(saved: Path, run: Run, tmp_path: Path) -> None:
    told = run(
        "finetune",
        saved,
        "-t",
        "demo",
        "-o",
        tmp_path / "tuned",
        "--epochs",
        3,
        "--learning-rate",
        0.05,
        "--compressed",
        "--quiet",
    )
    assert "30,742 weights are exactly zero" in told
    outcome = read(tmp_path / "tuned")
    assert outcome.pruned == 30_742
    assert outcome.record is not None
    scores = outcome.record["finetuned"]
    assert scores["after"]["accuracy"] > scores["before"]["accuracy"]
    assert "is not empty" in run("finetune", saved, "-t", "demo", "-o", tmp_path / "tuned", status=1)


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


def test_a_folder_that_does_not_know_its_model_is_told_so(saved: Path, run: Run) -> None:
    assert "give --target file.py:function" in run("evaluate", saved, status=1)


def test_a_damaged_folder_is_refused(saved: Path, run: Run, tmp_path: Path) -> None:
    model, _ = load_demo()
    record = read(saved)
    model.load_state_dict(record.state)
    save(model, tmp_path / "m", record.masks, compressed=True)
    path = tmp_path / "m" / "model.compressed.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert "is damaged" in run("evaluate", tmp_path / "m", "-t", "demo", status=1)


def test_the_folder_of_a_run_knows_its_model(run: Run, tmp_path: Path) -> None:
    run("compare", "demo", "-s", "0.9", "-s", "0.95", "-m", "mp", "-o", tmp_path / "run", "--quiet")
    assert "Give --cell with one of: mp@0.9, mp@0.95" in run("evaluate", tmp_path / "run", status=1)
    told = run("evaluate", tmp_path / "run", "--cell", "mp@0.9", "--seconds", 0.01)
    assert "3,236 of them not zero" in told


def test_a_fine_tuned_folder_knows_its_model(run: Run, tmp_path: Path) -> None:
    """From a run, from a folder whose target was named, and from another fine-tuned one."""
    run("prune", "demo", "-s", "0.9", "-m", "mp", "-o", tmp_path / "run", "--quiet")
    short = ("--epochs", 1, "--quiet")
    run("finetune", tmp_path / "run", "-o", tmp_path / "one", *short)
    run("finetune", tmp_path / "one", "-o", tmp_path / "two", *short)
    assert "3,236 of them not zero" in run("evaluate", tmp_path / "two", "--seconds", 0.01)
    (tmp_path / "two" / "target.json").write_text("{}")
    assert "name the target with --target" in run("evaluate", tmp_path / "two", status=1)


def test_a_fine_tuned_folder_from_elsewhere_names_code_that_is_not_run(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "from brainsurgeon.paper.datasets.embedded import load_demo\n\n\ndef build():\n"
        "    model, data = load_demo()\n    return {'model': model, 'data': data.train()}\n"
    )
    run("prune", f"{source}:build", "-s", "0.9", "-m", "mp", "-o", tmp_path / "run", "--quiet")
    run("finetune", tmp_path / "run", "-o", tmp_path / "one", "--epochs", 1, "--quiet")
    run("evaluate", tmp_path / "one", "--seconds", 0.01)
    (tmp_path / "one" / ".signature").write_text("another's")
    told = run("evaluate", tmp_path / "one", "--seconds", 0.01, status=1)
    assert "was not made by you here" in told
    assert "target.json" in told
    run("evaluate", tmp_path / "one", "--seconds", 0.01, "--trust")
