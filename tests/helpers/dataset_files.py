"""Tiny stand-ins for MNIST and CIFAR-10, in all the layouts, with hashes of their own."""

import dataclasses
import gzip
import hashlib
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from brainsurgeon.paper.datasets import cache
from brainsurgeon.paper.datasets.idx import encode_idx

Arrays = dict[str, np.ndarray]
Write = Callable[[Path, bytes], object]


def random_arrays(shape: tuple[int, ...], train: int, test: int) -> Arrays:
    rng = np.random.default_rng(0)
    parts: Arrays = {}
    for part, number in (("train", train), ("test", test)):
        parts[f"{part}_inputs"] = rng.integers(0, 256, (number, *shape), dtype=np.uint8)
        parts[f"{part}_targets"] = rng.integers(0, 10, number, dtype=np.uint8)
    return parts


def install(monkeypatch: pytest.MonkeyPatch, name: str, arrays: Arrays) -> None:
    """Make ``name`` mean these arrays, to be found nowhere on the web."""
    sha256 = {part: hashlib.sha256(encode_idx(array)).hexdigest() for part, array in arrays.items()}
    spec = dataclasses.replace(cache.DATASETS[name], sha256=sha256, mirrors=())
    monkeypatch.setitem(cache.DATASETS, name, spec)


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    arrays = random_arrays((28, 28), train=12, test=4)
    install(monkeypatch, "mnist", arrays)
    return arrays


@pytest.fixture
def cifar10(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    arrays = random_arrays((3, 32, 32), train=10, test=4)
    install(monkeypatch, "cifar10", arrays)
    return arrays


def write_mnist(folder: Path, arrays: Arrays, write: Write, suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, prefix in (("train", "train"), ("test", "t10k")):
        write(folder / f"{prefix}-images-idx3-ubyte{suffix}", encode_idx(arrays[f"{part}_inputs"]))
        write(folder / f"{prefix}-labels-idx1-ubyte{suffix}", encode_idx(arrays[f"{part}_targets"]))


def cifar_batches(arrays: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    inputs, targets = np.split(arrays["train_inputs"], 5), np.split(arrays["train_targets"], 5)
    batches = {f"data_batch_{i + 1}": (inputs[i], targets[i]) for i in range(5)}
    return {**batches, "test_batch": (arrays["test_inputs"], arrays["test_targets"])}


def write_python_batches(folder: Path, arrays: Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in cifar_batches(arrays).items():
        content = {b"data": images.reshape(len(images), -1), b"labels": labels.tolist(), b"batch_label": b"x"}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def write_python_archive(folder: Path, arrays: Arrays) -> None:
    batches = folder.parent / "unpacked"
    write_python_batches(batches, arrays)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(batches, "cifar-10-batches-py")


def write_strips(folder: Path, arrays: Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, _) in cifar_batches(arrays).items():
        Image.fromarray(images.reshape(len(images), 3, 1024).transpose(0, 2, 1)).save(folder / f"{name}.png")
    for part in ("train", "test"):
        (folder / f"{part}_lables.json").write_text(json.dumps(arrays[f"{part}_targets"].tolist()))


def write_gz(path: Path, content: bytes) -> None:
    """Write what a file would hold, packed."""
    path.write_bytes(gzip.compress(content))
