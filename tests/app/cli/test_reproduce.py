"""`brainsurgeon reproduce`: what is recorded is shown, and what is missing computed."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from brainsurgeon.app.cli import app
from brainsurgeon.app.cli.reproduce import What
from brainsurgeon.paper.reproduce import cells
from brainsurgeon.paper.reproduce.published import PUBLISHED
from brainsurgeon.paper.reproduce.show import NETWORKS


def test_what_is_recorded_is_shown_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["reproduce", "table1", "--recorded"])
    assert shown.exit_code == 0, shown.output
    assert f"({PUBLISHED['mlpnet']['cbs'][0.9]:.2f})" in shown.output  # whole, though it is wider than the terminal
    assert not list(tmp_path.iterdir())


def test_quick_is_one_seed_and_the_three_highest_sparsities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is read afterwards; nothing is computed where only the recorded is asked for."""
    asked = list[Any]()
    monkeypatch.setattr(cells, "compute", lambda *given, **how: asked.append((given, how)))
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "table1", "--results", str(tmp_path / "cells"), "--checkpoints", str(tmp_path)]
    assert CliRunner().invoke(app, [*command, "--quick"]).exit_code != 0  # nothing was recorded
    ((protocol, results, folders), how) = (asked[0][0][:3], asked[0][1])
    assert (protocol.network, results) == ("mlpnet", tmp_path / "cells")
    assert folders[0] == tmp_path
    assert how["sparsities"] == (0.9, 0.95, 0.98)
    assert list(how["seeds"]) == [0]
    CliRunner().invoke(app, [*command, "--seeds", "2"])
    assert (asked[1][1]["sparsities"], list(asked[1][1]["seeds"])) == (None, [0, 1])
    CliRunner().invoke(app, [*command, "--recorded"])
    assert len(asked) == 2


def test_everything_that_can_be_asked_for_has_its_networks() -> None:
    assert {item.value for item in What} - {"all"} == set(NETWORKS)
