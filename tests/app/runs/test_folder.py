"""Run folders: each run its own, written by one process, refused before work where it cannot be kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_recipes import RECIPE

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunError, RunFolder, execute
from brainsurgeon.files.sealed import FileError


def test_runs_that_start_at_once_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [RunFolder.create(make_recipe(RECIPE)) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    assert all(run.path.parent == Path("runs") for run in runs)


def test_a_folder_that_holds_something_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"not empty: give a new folder$"):
        RunFolder.create(make_recipe(RECIPE), tmp_path)
    RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    with pytest.raises(RunError, match="--resume"):
        RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["notes.txt"]


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    with run.locked(), pytest.raises(RunError, match="worked on by another process"):
        execute(run)
    execute(run)


def test_an_unwritable_place_is_noticed_before_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write to .*--output"):
        RunFolder.create(make_recipe(RECIPE), tmp_path / "file" / "run")


def test_a_folder_that_is_no_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not the folder of a run"):
        RunFolder.open(tmp_path)


def test_the_number_of_threads_is_that_of_the_recipe_and_is_put_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    seen = []
    run = RunFolder.create(make_recipe({**RECIPE, "threads": before + 1}), tmp_path / "run")
    execute(run, lambda event: seen.append(torch.get_num_threads()))
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("content", ["[]", "{", "null", "[" * 100_000])
def test_damaged_facts_are_refused_in_words_on_resume(tmp_path: Path, content: str) -> None:
    run = RunFolder.create(make_recipe(RECIPE), tmp_path / "run")
    (run.path / "run.json").write_text(content)
    with pytest.raises(FileError, match=r"run\.json holds"):
        execute(run)
