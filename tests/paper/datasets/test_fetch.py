"""Data come into the cache, checked, whole and once."""

import dataclasses
import gzip
import hashlib
from pathlib import Path

import pytest
from dataset_files import Arrays, write_gz, write_mnist, write_python_archive
from web import Server

from brainsurgeon.paper.datasets import DataError, cache, fetch, load


def test_the_source_may_be_an_archive(tmp_path: Path, cifar10: Arrays) -> None:
    write_python_archive(tmp_path / "copy", cifar10)
    fetch("cifar10", tmp_path / "cache", tmp_path / "copy" / "cifar-10-python.tar.gz")
    assert len(load("cifar10", tmp_path / "cache").test_targets) == 4


def test_an_altered_copy_is_refused_and_nothing_is_stored(tmp_path: Path, mnist: Arrays) -> None:
    altered = {**mnist, "test_targets": mnist["test_targets"] ^ 1}
    write_mnist(tmp_path / "copy", altered, Path.write_bytes)
    with pytest.raises(DataError, match="the copy is damaged or altered: the test targets"):
        fetch("mnist", tmp_path / "cache", tmp_path / "copy")
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_a_folder_without_the_data_says_what_was_looked_for(tmp_path: Path, cifar10: Arrays) -> None:
    with pytest.raises(DataError, match="python batches"):
        fetch("cifar10", tmp_path / "cache", tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        fetch("cifar10", tmp_path / "cache", tmp_path / "absent")


def test_a_complete_cache_needs_no_source(tmp_path: Path, mnist: Arrays) -> None:
    write_mnist(tmp_path / "copy", mnist, Path.write_bytes)
    fetch("mnist", tmp_path / "cache", tmp_path / "copy")
    assert fetch("mnist", tmp_path / "cache", tmp_path / "absent") == tmp_path / "cache" / "mnist"


def test_mirrors_are_tried_in_turn_and_downloads_removed(
    tmp_path: Path, mnist: Arrays, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "site", mnist, write_gz, ".gz")
    for file in (tmp_path / "site").iterdir():
        server.files[f"/good/{file.name}"] = file.read_bytes()
        server.files[f"/damaged/{file.name}"] = gzip.compress(b"no idx file")
    mirrors = tuple(
        tuple(f"{server.url}/{mirror}/{path.rpartition('/')[2]}" for path in server.files if "good" in path)
        for mirror in ("absent", "damaged", "good")
    )
    spec = cache.DATASETS["mnist"]
    monkeypatch.setitem(cache.DATASETS, "mnist", dataclasses.replace(spec, mirrors=mirrors))
    folder = fetch("mnist", tmp_path / "cache")
    assert sorted(p.name for p in folder.iterdir()) == [f"{part}.idx" for part in sorted(spec.sha256)]
    content = (folder / "test_inputs.idx").read_bytes()
    assert hashlib.sha256(content).hexdigest() == spec.sha256["test_inputs"]
