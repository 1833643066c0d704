"""`brainsurgeon shrink`: a folder with the smaller network, its record and a summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import brainsurgeon
from brainsurgeon.app.cli import main
from brainsurgeon.paper.datasets.embedded import load_demo


def test_a_smaller_network_is_written_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "small"
    arguments = ["shrink", "demo", "--macs", "50%", "--samples", "200", "--epochs", "1", "-q", "-o", str(folder)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "at once" in said
    assert "fine-tuned" in said
    assert (folder / "summary.txt").read_text().splitlines()[0] in said
    record = json.loads((folder / "result.json").read_text())
    assert record["multiply_adds"][1] <= 0.5 * record["multiply_adds"][0]
    model = brainsurgeon.load_shrunk(folder, load_demo()[0])
    assert sum(parameter.numel() for parameter in model.parameters()) == record["parameters"][1]


def test_what_was_shrunk_is_kept_where_its_fine_tune_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "small"
    arguments = ["shrink", "demo", "--macs", "0.5", "--samples", "50", "--epochs", "1", "--learning-rate", "-1", "-q"]
    assert main([*arguments, "-o", str(folder)]) == 1
    told = capsys.readouterr().err
    assert "not fine-tuned" in told
    assert "learning_rate" in told
    assert brainsurgeon.load_shrunk(folder, load_demo()[0])


def test_misuse_and_a_taken_folder_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shrink", "demo", "--macs", "half"]) == 2
    assert main(["shrink"]) == 2
    (tmp_path / "there").write_text("")
    assert main(["shrink", "demo", "--macs", "0.5", "-o", str(tmp_path)]) == 1
    assert "give a new folder" in capsys.readouterr().err
    assert main(["shrink", "demo", "--macs", "0.5", "--units", "0.5", "-q", "-o", str(tmp_path / "new")]) == 1
    assert "give one target" in capsys.readouterr().err


def test_a_start_that_fails_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "small"
    assert main(["shrink", "missing.py:model", "-q", "-o", str(folder)]) == 1
    assert main(["shrink", "demo", "--macs", "1e-9", "--samples", "50", "-q", "-o", str(folder)]) == 1
    assert capsys.readouterr().err
    assert not list(tmp_path.iterdir())
