"""`brainsurgeon compare`: one table, and every cell kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import QUICK, TARGET

from brainsurgeon.app.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_compare_shows_one_table_and_keeps_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", TARGET, "-m", "mp", "-m", "cbs", "-s", "0.5", "-s", "0.8", "-o", "cmp", *QUICK]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "4 pruned models" in out
    assert Path("cmp/comparison.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in Path("cmp/cells").iterdir()) == ["cbs@0.5", "cbs@0.8", "mp@0.5", "mp@0.8"]
    assert main(["compare", "--resume", "cmp", "-q"]) == 0
    assert capsys.readouterr().out == out
    assert main(arguments) == 1
    assert "--resume cmp" in capsys.readouterr().err
