"""Names of files are harmless, and nothing is written outside the folder of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from brainsurgeon import BrainsurgeonError
from brainsurgeon.app.report.output import put, subfolder
from brainsurgeon.app.report.write import write_report


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    folder = subfolder(tmp_path, "report")
    for name in ("page.html", ".page.html.tmp"):
        (folder / name).symlink_to(outside)
    put(folder, "page.html", "new")
    assert outside.read_text() == "mine"
    assert not (folder / "page.html").is_symlink()
    assert (folder / "page.html").read_text() == "new"
    assert [path.name for path in folder.iterdir()] == ["page.html"]


@pytest.mark.parametrize("name", ["figures", "tables"])
def test_a_linked_folder_is_refused(make_run: Callable[..., Path], tmp_path: Path, name: str) -> None:
    folder = make_run(tmp_path / "run", ["w"], ["mp"], [0.5])
    (tmp_path / "outside").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "outside")
    with pytest.raises(BrainsurgeonError, match=rf"{name} is a link to .*outside.*remove the link"):
        write_report([folder], tmp_path / "out", png=False)
    assert list((tmp_path / "outside").iterdir()) == []


def test_names_that_climb_stay_inside(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """Scores and layers called like paths make files in figures/ and tables/ alone."""
    pytest.importorskip("matplotlib", reason="masks are drawn by matplotlib")
    scores = {"../../escaped": 1.0, "/etc/passwd": 2.0, "..": 3.0}
    folder = make_run(tmp_path / "run", ["../../up", "a/b", "C:\\x"], ["mp", "cbs"], [0.5], scores=scores)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    write_report([folder], tmp_path / "deep" / "er" / "out")
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert len(made) > 20
    allowed = {tmp_path / "deep" / "er" / "out" / part for part in (".", "figures", "tables")}
    assert {path.parent for path in made} == allowed
    assert any("mask-.._.._up" in path.name for path in made)
