"""The command line: quick to answer, errors in one line, exit codes that scripts can rely on."""

import subprocess
import sys

import pytest

from brainsurgeon.app.cli import main
from brainsurgeon.paper import datasets as data_module

COMMANDS = ("prune", "compare", "shrink", "inspect", "report", "doctor", "demo", "data fetch", "train", "reproduce")


@pytest.mark.parametrize("arguments", [["--help"], *([*command.split(), "--help"] for command in COMMANDS)])
def test_help_does_not_wait_for_pytorch(arguments: list[str]) -> None:
    program = (
        "import sys; from brainsurgeon.app.cli import main\n"
        f"status = main({arguments!r})\n"
        "sys.exit(status or 'torch' in sys.modules and 'torch was imported')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: brainsurgeon" in done.stdout


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("brainsurgeon ")


def test_a_users_error_is_one_line_without_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "svhn"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "Error: Unknown data set 'svhn'. The known ones are: mnist, cifar10.\n"


@pytest.mark.parametrize("position", [0, 3])
def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], position: int) -> None:
    arguments = ["data", "fetch", "svhn"]
    arguments.insert(position, "--debug")
    assert main(arguments) == 1
    assert "Traceback" in capsys.readouterr().err


def test_misuse_has_a_status_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bogus"]) == 2
    assert main(["data", "fetch"]) == 2
    assert "Missing argument" in capsys.readouterr().err


def test_an_interruption_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data_module, "fetch", interrupt)
    assert main(["data", "fetch", "mnist"]) == 130


def test_our_own_errors_are_called_bugs_and_have_a_status_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(data_module, "fetch", fail)
    assert main(["data", "fetch", "mnist"]) == 70
    err = capsys.readouterr().err
    assert "Bug: ZeroDivisionError: by nothing" in err
    assert "Traceback" not in err
    assert main(["--debug", "data", "fetch", "mnist"]) == 70
    assert "Traceback" in capsys.readouterr().err
