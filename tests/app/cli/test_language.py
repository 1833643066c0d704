"""Language models in local folders through the command: in memory, on disk, and killed on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from brainsurgeon.app.cli import main
from brainsurgeon.app.runs.store import FileStore
from brainsurgeon.files import load_masks

pytest.importorskip("transformers")
from language_folders import small_model, write_folder, write_text
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, two texts, and a run in memory."""
    place = tmp_path_factory.mktemp("language")
    write_folder(place / "model", small_model(tied=True))
    write_text(place / "text.txt", 24 * 12)
    write_text(place / "test.txt", 10 * 12, seed=1)
    assert main([*command(place), "-o", str(place / "memory")]) == 0
    return place


def command(place: Path) -> list[str]:
    texts = ["--text", str(place / "text.txt"), "--test-text", str(place / "test.txt"), "--window", "12"]
    return ["prune", f"hf:{place / 'model'}", *texts, "-s", "0.5", "-m", "layerwise", "-q"]


def record(run: Path) -> dict:
    return json.loads((run / "result" / "result.json").read_text())


def test_on_disk_gives_what_a_run_in_memory_gives(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "disk"
    assert main([*command(place), "--on-disk", "-o", str(run)]) == 0
    assert "weights pruned" in capsys.readouterr().out
    mine, theirs = record(run), record(place / "memory")
    assert [mine[key] for key in ("pruned", "loss_after", "layers")] == [
        theirs[key] for key in ("pruned", "loss_after", "layers")
    ]
    scores = [json.loads((r / "result" / "measured.json").read_text())["scores"] for r in (run, place / "memory")]
    assert scores[0] == pytest.approx(scores[1])
    assert "perplexity, windows of 12" in scores[0]
    assert not (run / "steps").exists()
    assert main(["export", str(place / "memory"), "huggingface", str(tmp_path / "exported")]) == 0
    folder = run / "result" / "huggingface"
    found, expected = (AutoModelForCausalLM.from_pretrained(f).state_dict() for f in (folder, tmp_path / "exported"))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    masks, known = (load_masks(f / "pruning_masks.safetensors") for f in (folder, tmp_path / "exported"))
    assert all(torch.equal(masks[name], mask) for name, mask in known.items())
    assert (folder / "tokenizer.json").is_file()
    assert "pruned" in (folder / "README.md").read_text()
    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 0
    assert f"{scores[0]['perplexity, windows of 12']:.3f}"[:5] in capsys.readouterr().out


def test_a_run_on_disk_that_is_killed_goes_on(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, run = FileStore.save_part, tmp_path / "killed"

    def dying(self: FileStore, number: int, tensors: dict[str, torch.Tensor]) -> None:
        if number == 3:
            raise KeyboardInterrupt
        own(self, number, tensors)

    monkeypatch.setattr(FileStore, "save_part", dying)
    assert main([*command(place), "--on-disk", "-o", str(run)]) != 0
    assert not (run / "result").exists()
    assert (run / "steps").exists()
    monkeypatch.setattr(FileStore, "save_part", own)
    assert main(["prune", "--resume", str(run), "-q"]) == 0
    assert record(run)["loss_after"] == record(place / "memory")["loss_after"]
    assert record(run)["layers"] == record(place / "memory")["layers"]


def test_a_model_on_disk_takes_one_layer_wise_method(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(place)
    arguments[arguments.index("layerwise")] = "cbs"
    assert main([*arguments, "--on-disk", "-o", str(tmp_path / "cbs")]) != 0
    assert "take a layer-wise method" in " ".join(capsys.readouterr().err.split())
    goal = [*command(place), "--on-disk", "--max-drop", "1%", "-o", str(tmp_path / "goal")]
    del goal[goal.index("-s") : goal.index("-s") + 2]
    assert main(goal) != 0
    assert "give one method and one sparsity" in " ".join(capsys.readouterr().err.split())


def test_a_text_that_is_too_short_is_told(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = write_text(tmp_path / "short.txt", 20)
    arguments = ["prune", f"hf:{place / 'model'}", "--text", str(short), "--window", "12", "-m", "layerwise"]
    assert main([*arguments, "-o", str(tmp_path / "run")]) != 0
    assert "give a longer text or a shorter window" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("where", [[], ["--on-disk"]])
def test_memory_and_time_are_told_before_anything_runs(
    where: list[str], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"hf:{place / 'model'}", "--text", str(place / "text.txt"), "--window", "12", "-m", "layerwise"]
    assert main(["inspect", *arguments, "-s", "0.5", *where]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "To prune: 2,880 of 5,760 weights" in told
    assert "Memory: about" in told
    assert "moments 0." in told.partition("Time: very roughly")[2]
    assert "gradients" not in told, "a layer-wise run takes none"
    monkeypatch.setattr("brainsurgeon.app.forecast.available_bytes", lambda _: 10_000)
    assert main(["inspect", *arguments, "-s", "0.5", *where]) == 3
    assert "It does not fit" in capsys.readouterr().err
