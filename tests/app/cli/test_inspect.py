"""`brainsurgeon inspect`: what would happen is said, and nothing is done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from commands import TARGET

from brainsurgeon.app.cli import main
from brainsurgeon.app.cli.inspect import _time
from brainsurgeon.network.memory import readable

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
    falling(monkeypatch, 1000)
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


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of the memory of a run on the demonstration network."""
    status = main(["inspect", "demo", "-s", "0.9", "--no-time", *arguments])
    out = " ".join(capsys.readouterr().out.split())
    assert status == 0
    return out[out.index("Memory:") :]


def falling(monkeypatch: pytest.MonkeyPatch, start: int) -> list[int]:
    """Let the free memory be less whenever someone asks; return what was answered."""
    answers: list[int] = []

    def ask(_: torch.device) -> int:
        answers.append(start - 1024 * len(answers))
        return answers[-1]

    for place in ("brainsurgeon.pruning.fitting", "brainsurgeon.app.forecast"):
        monkeypatch.setattr(f"{place}.available_bytes", ask)
    return answers


def test_free_memory_is_one_figure_which_the_check_uses_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = falling(monkeypatch, 700 << 20)
    out = told(capsys, "-m", "cbs", "-k", "1000")
    assert re.findall(r"free: ([\d.,]+ \w+)", out) == [readable(answers[0])] == ["700 MiB"]
    assert out.count("free") == out.count("700 MiB") == 1
    assert len(answers) == 1
    answers = falling(monkeypatch, 900 << 10)
    assert main(["inspect", "demo", "-m", "cbs", "-m", "mp", "-s", "0.9", "-k", "1000"]) == 3
    said = capsys.readouterr()
    assert "free: 900 KiB" in " ".join(said.out.split())
    assert "900 KiB are free on cpu" in said.err
    assert len(answers) == 1


def test_no_more_gradients_are_foreseen_than_the_data_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration has 5,000 training digits and 32,360 weights."""

    def needs(out: str) -> str:
        return out.partition("; free")[0]

    most = needs(told(capsys, "-m", "cbs", "-k", "5000"))
    assert f"gradients {readable(5000 * 32_360 * 4)}," in most
    assert needs(told(capsys, "-m", "cbs", "-k", "1000000")) == most
    assert f"gradients {readable(700 * 32_360 * 4)}," in told(capsys, "-m", "cbs", "-k", "700")
