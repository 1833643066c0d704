"""Recorded cells are found in a clone, in a wheel, and from anywhere."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from brainsurgeon.app.cli import app
from brainsurgeon.paper.reproduce import show as module
from brainsurgeon.paper.reproduce.cells import read_cells
from brainsurgeon.paper.reproduce.published import PUBLISHED
from brainsurgeon.paper.reproduce.show import NETWORKS, recorded_folder

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "experiments" / "results"


def test_what_is_recorded_is_shown_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["reproduce", "table1", "--recorded"])
    assert shown.exit_code == 0, shown.output
    assert f"({PUBLISHED['mlpnet']['cbs'][0.9]:.2f})" in shown.output  # whole, though it is wider than the terminal
    assert not list(tmp_path.iterdir())


def test_cells_of_the_folder_one_stands_in_come_first_then_those_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "PACKAGED", tmp_path / "recorded")
    assert recorded_folder() == RESULTS
    for place in (tmp_path / "recorded", Path("experiments/results")):
        place.mkdir(parents=True)
        shutil.copy(RESULTS / "mlpnet-seed0.jsonl", place)
        assert recorded_folder() == place


@pytest.mark.slow
def test_a_wheel_holds_the_cells_of_every_table(tmp_path: Path) -> None:
    """Built as a user builds it, which takes hatchling from the package index."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    wheel, place = next(tmp_path.glob("*.whl")), tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
        size = sum(item.compress_size for item in archive.infolist() if "/recorded/" in item.filename)
    assert 0 < size < 500_000
    for network in {name for names in NETWORKS.values() for name in names}:
        assert read_cells(place / "brainsurgeon" / "paper" / "recorded", network) == read_cells(RESULTS, network)
    program = [sys.executable, "-c", "from brainsurgeon.app.cli import main; main()"]
    shown = subprocess.run(
        [*program, "reproduce", "table2", "--recorded"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(place), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "table2" in shown.stdout
