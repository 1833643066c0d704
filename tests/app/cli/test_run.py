"""What prune and compare share: how a run goes is told, and how to go on with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import QUICK, TARGET

from brainsurgeon.app.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_log_lines_take_the_place_of_bars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", TARGET, "-m", "cbs", "-o", "run", *QUICK[:-1]]) == 0
    err = capsys.readouterr().err
    assert "gradients: 60 of 60" in err
    assert "\x1b" not in err
    assert "gradients: 60 of 60" in Path("run/log.txt").read_text()


def test_a_start_that_fails_is_told_whatever_its_folder_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.py").write_text("x = 1\n")
    Path("real").mkdir()
    Path("link").symlink_to("real")
    for folder in ("link", "new"):
        assert main(["prune", "model.py:nothing", "-m", "mp", "-o", folder, "-q"]) == 1
        assert "has no function 'nothing'" in capsys.readouterr().err
    assert not list(Path("real").iterdir())
    assert not Path("new").exists()


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    """Ctrl-C in the middle of very many draws: status 130, the way on, and a run that a resume would take up."""
    many = ["--set", "num_draws=1000000", "-m", "rmp"]
    child = subprocess.Popen(
        [sys.executable, "-m", "brainsurgeon", "prune", TARGET, "-o", "run", *many],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "draws" in line:
            break
    child.send_signal(signal.SIGINT)
    rest = child.stderr.read()
    assert child.wait() == 130
    assert "Go on with: brainsurgeon prune --resume run" in rest
    assert "Traceback" not in rest
    assert "stopped: KeyboardInterrupt" in Path("run/log.txt").read_text()


def test_quiet_says_nothing_but_the_outcome(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ["prune", TARGET, "-s", "0.5", "-m", "staged", "--set", "max_gradients=500", "--set", "schedule=2"]
    assert main([*given, "--quiet", "-o", str(tmp_path / "run")]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "Report:" in out
