"""`brainsurgeon sweep`, and prune with a goal."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing import TARGET

from brainsurgeon.app.cli import main
from brainsurgeon.app.report import read_record


def test_goals_and_sweeps_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [TARGET, "-m", "mp", "--quiet", "-o"]
    assert main(["prune", *given, str(tmp_path / "goal"), "--max-drop", "5%", "--metric", "accuracy"]) == 0
    shown = capsys.readouterr().out
    assert "80 held-out training samples" in shown.replace("\n", " ")
    assert main(["prune", *given, str(tmp_path / "bytes"), "--target-bytes", "1500"]) == 0
    assert "of 1,500" in capsys.readouterr().out.replace("\n", " ")
    assert main(["sweep", *given, str(tmp_path / "sweep"), "-s", "0.5", "-s", "0.8"]) == 0
    assert "2 pruned models" in capsys.readouterr().out
    record = read_record([tmp_path / "sweep"])
    assert record.sparsities == [0.5, 0.8]
    assert (tmp_path / "sweep" / "comparison.svg").is_file()
    assert main(["prune", *given, str(tmp_path / "both"), "--max-drop", "5%", "-s", "0.5"]) == 1
