"""The demonstration runs from the package alone and shows every method."""

from pathlib import Path

import pytest

from brainsurgeon.app.cli import demo, main


def test_the_demonstration_shows_a_table_and_draws_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SPARSITIES", (0.9,))
    picture = tmp_path / "demo.svg"
    assert main(["demo", "--picture", str(picture), "--num-gradients", "60"]) == 0
    shown = capsys.readouterr().out
    assert "3,236" in shown  # the weights left at 0.9
    assert all(title in shown for title in ("MP", "WF-S", "CBS-S", "WF", "CBS"))
    assert "<svg" in picture.read_text()
