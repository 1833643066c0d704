"""What is in the cache is found, checked and read."""

from pathlib import Path

import pytest
from dataset_files import Arrays, write_mnist

from brainsurgeon.paper.datasets import DataError, cache_folder, fetch, load


def test_damage_and_absence_are_found_when_loading(tmp_path: Path, mnist: Arrays) -> None:
    with pytest.raises(DataError, match=r"is missing. Run `brainsurgeon data fetch mnist`"):
        load("mnist", tmp_path / "cache")
    write_mnist(tmp_path / "copy", mnist, Path.write_bytes)
    folder = fetch("mnist", tmp_path / "cache", tmp_path / "copy")
    with (folder / "train_inputs.idx").open("r+b") as file:
        file.seek(500)
        file.write(b"damage")
    with pytest.raises(DataError, match=r"train_inputs.idx is damaged"):
        load("mnist", tmp_path / "cache")
    fetch("mnist", tmp_path / "cache", tmp_path / "copy")
    load("mnist", tmp_path / "cache")


def test_an_unknown_data_set_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    for function in (load, fetch):
        with pytest.raises(DataError, match="mnist, cifar10"):
            function("svhn", tmp_path)


def test_the_cache_folder_is_argument_variable_or_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAINSURGEON_DATA", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "brainsurgeon"
    monkeypatch.setenv("BRAINSURGEON_DATA", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    assert cache_folder("/else") == Path("/else")
