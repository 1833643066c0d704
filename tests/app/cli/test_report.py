"""`brainsurgeon report`: pictures and tables of finished runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import QUICK, TARGET

from brainsurgeon.app.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_report_writes_pictures_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    main(["prune", TARGET, "-m", "mp", "-o", "one", *QUICK])
    main(["prune", TARGET, "-m", "wf", "-o", "two", *QUICK])
    assert main(["report", "one", "two", "-o", "both"]) == 0
    assert Path("both/report.html").is_file()
    found = {path.suffix for path in Path("both").rglob("*")}
    assert {".svg", ".png", ".csv", ".md", ".tex"} <= found
    assert main(["report", "nowhere"]) == 1
    assert "neither the folder of a run" in capsys.readouterr().err
