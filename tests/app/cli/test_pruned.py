"""A pruned model from the folder of a run, or one that was saved."""

from pathlib import Path

from commands import Run

from brainsurgeon import save
from brainsurgeon.files import read
from brainsurgeon.paper.datasets.embedded import load_demo


def test_a_folder_that_does_not_know_its_model_is_told_so(saved: Path, run: Run) -> None:
    assert "give --target file.py:function" in run("evaluate", saved, status=1)


def test_a_damaged_folder_is_refused(saved: Path, run: Run, tmp_path: Path) -> None:
    model, _ = load_demo()
    record = read(saved)
    model.load_state_dict(record.state)
    save(model, tmp_path / "m", record.masks, compressed=True)
    path = tmp_path / "m" / "model.compressed.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert "is damaged" in run("evaluate", tmp_path / "m", "-t", "demo", status=1)


def test_the_folder_of_a_run_knows_its_model(run: Run, tmp_path: Path) -> None:
    run("compare", "demo", "-s", "0.9", "-s", "0.95", "-m", "mp", "-o", tmp_path / "run", "--quiet")
    assert "Give --cell with one of: mp@0.9, mp@0.95" in run("evaluate", tmp_path / "run", status=1)
    told = run("evaluate", tmp_path / "run", "--cell", "mp@0.9", "--seconds", 0.01)
    assert "3,236 of them not zero" in told
