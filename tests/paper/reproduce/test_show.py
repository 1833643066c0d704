"""Recorded cells are found in a clone, in a wheel, and from anywhere."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from brainsurgeon.paper.reproduce import show as module
from brainsurgeon.paper.reproduce.cells import Cell, read_cells
from brainsurgeon.paper.reproduce.show import NETWORKS, TIMED, recorded_folder, show

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "experiments" / "results"


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


def cell(method: str, sparsity: float, seconds: float, threads: int) -> str:
    told = {"device": f"{threads} CPU threads"}
    return json.dumps({"method": method, "sparsity": sparsity, "seconds": {"update": seconds}, "versions": told}) + "\n"


def test_times_are_those_of_the_cells_that_were_recorded_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, list[Cell]] = {}
    monkeypatch.setattr(module.draw, "run_time", lambda cells, path: drawn.update(cells))
    (tmp_path / TIMED).mkdir()
    for network in ("mlpnet", "cifarnet"):
        (tmp_path / f"{network}-seed0.jsonl").write_text(cell("wf", 0.5, 70.0, 2) + cell("cbs", 0.5, 12.0, 1))
    (tmp_path / TIMED / "mlpnet-seed0.jsonl").write_text(cell("wf", 0.5, 140.0, 1))
    show("figure3", ["mlpnet", "cifarnet"], tmp_path, tmp_path)
    assert [(c["method"], c["seconds"]["update"]) for c in drawn["mlpnet"]] == [("wf", 140.0)]
    assert [c["method"] for c in drawn["cifarnet"]] == ["wf", "cbs"]


def test_methods_whose_times_are_compared_had_the_same_device() -> None:
    """One thread, or the same GPU, for all curves of a network in figure 3."""
    for network in NETWORKS["figure3"]:
        cells = read_cells(RESULTS / TIMED, network) or read_cells(RESULTS, network)
        shown = [c for c in cells if c["method"] in ("wf", "cbs-s", "cbs")]
        assert len({(c["versions"]["device"], c.get("clock")) for c in shown}) == 1
        assert {c["method"] for c in shown} == {"wf", "cbs-s", "cbs"}


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
    assert read_cells(place / "brainsurgeon" / "paper" / "recorded" / TIMED, "mlpnet")
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
