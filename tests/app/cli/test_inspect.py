"""`brainsurgeon inspect`: what would happen is said, and nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import TARGET

from brainsurgeon.app.cli import main
from brainsurgeon.app.cli.inspect import _time

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_inspect_says_what_would_happen_and_does_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["inspect", TARGET, "-m", "cbs", "-s", "0.8", "-k", "50"]) == 0
    out = capsys.readouterr().out
    assert "288 of 360 weights" in out
    assert "left alone" in out  # the biases
    assert "gradients" in out.partition("Time")[2]
    assert not list(Path.cwd().iterdir())
    monkeypatch.setattr("brainsurgeon.pruning.fitting.available_bytes", lambda device: 1000)
    monkeypatch.setattr("brainsurgeon.app.forecast.available_bytes", lambda device: 1000)
    assert main(["inspect", TARGET, "--no-time"]) == 3
    assert "and 1000 bytes are free on cpu. Nothing that it can be told would make it fit" in capsys.readouterr().err
    assert main(["prune", TARGET, "-o", "run"]) == 3


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (119.0, "119 s"), (120.0, "2 min"), (9000.0, "2.5 h")]
)
def test_times_are_told_in_fitting_units(seconds: float, words: str) -> None:
    assert _time(seconds) == words


def test_an_output_without_a_sensitivity_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", TARGET, "-o", "x"]) == 2
    assert "give --sensitivity, too" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not list(Path.cwd().iterdir())
