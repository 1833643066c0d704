"""`brainsurgeon doctor`: what is there, and what is not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from brainsurgeon.app.cli import main


def test_doctor_names_what_is_there_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("torch", "cpu", "threads", "highspy", "mnist", "GiB free"):
        assert word in out


def test_doctor_says_how_to_get_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every extra that it names is one of the package's."""
    from brainsurgeon.app.cli import doctor

    monkeypatch.setattr(doctor, "_version", lambda package: None)
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = {extra for extra, _ in (*doctor.EXTRAS.values(), *doctor.SOLVERS.values()) if extra}
    assert extras <= project["optional-dependencies"].keys()
    for extra in extras:
        assert f"pip install 'brainsurgeon[{extra}]'" in out
