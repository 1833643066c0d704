"""Every experiment starts: it imports, and says what it is for."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest

import experiments
from experiments import run_all

FOLDER = Path(experiments.__file__).parent
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text())


def test_there_are_experiments() -> None:
    assert len(SCRIPTS) >= 18


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_is_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = importlib.import_module(f"experiments.{name}")
    with pytest.raises(SystemExit) as stopped:
        script.main(["--help"])
    assert stopped.value.code == 0
    assert "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_records_are_written_by_the_one_helper(path: Path) -> None:
    """A script that writes JSON by itself would leave the commit out."""
    if path.stem not in {"records", "cells", "run_all"}:  # these add the commit, or move lines that have one
        assert ".open(" not in path.read_text()
        assert "write_text(json" not in path.read_text()


def test_every_job_of_all_runs_is_a_command_that_its_script_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = argparse.Namespace(checkpoints=tmp_path, device="cpu", only=list(run_all.PLACES))
    found = run_all.jobs(options)
    assert {kind for kind, _ in found} == set(run_all.PLACES)

    class ParsedError(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, arguments: list[str]) -> None:
        parse(self, arguments)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    for kind, (_, _, module, *arguments) in found:
        source, target = run_all.PLACES[kind]
        with pytest.raises(ParsedError):
            importlib.import_module(module).main([*arguments, source, str(tmp_path), target, str(tmp_path)])
