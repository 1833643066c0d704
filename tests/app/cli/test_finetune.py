"""`brainsurgeon finetune`: the count is kept, and the output checked first."""

from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Run

from brainsurgeon.files import read
from brainsurgeon.training import finetune as finetune_module
from brainsurgeon.training import loop


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


@pytest.mark.parametrize("when", ["training", "measuring"])
def test_what_was_trained_is_kept_where_it_is_interrupted(
    when: str, saved: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zeros are kept, also in the midst of a step."""
    if when == "training":
        train = loop.Tuning._epoch

        def epoch(self: Any, data: Any, number: int) -> float:
            if number == 1:
                with torch.no_grad():
                    next(iter(self.batch_loss.model.parameters())).add_(1.0)
                raise KeyboardInterrupt
            return train(self, data, number)

        monkeypatch.setattr(loop.Tuning, "_epoch", epoch)
    else:
        calls = iter([{"accuracy": 1.0}])
        monkeypatch.setattr("brainsurgeon.app.scores.measure", lambda _: next(calls))
    arguments = ("finetune", saved, "-t", "demo", "-o", tmp_path / "tuned", "--epochs", 5, "--quiet")
    told = run(*arguments, status=130 if when == "training" else 70)
    assert "saved in" in told
    outcome = read(tmp_path / "tuned")
    assert outcome.pruned == 30_742
    assert outcome.record is not None
    assert ("interrupted" in outcome.record["finetuned"]) == (when == "training")


def test_a_taken_place_and_a_device_that_is_not_there_are_told(saved: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file: give a new folder" in run("finetune", saved, "-t", "demo", "-o", tmp_path / "file", status=1)
    assert "cannot be used here" in run("finetune", saved, "-t", "demo", "--device", "cuda:99", status=1)
