"""Reading the layouts in which MNIST and CIFAR-10 are passed around."""

import json
import pickle
import tarfile
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from brainsurgeon.paper.datasets.idx import read_idx
from brainsurgeon.paper.datasets.images import DataError, pillow

_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


def read_mnist(folder: Path) -> dict[str, np.ndarray]:
    """Read MNIST from its four idx files, gzipped or not, anywhere below `folder`."""
    names = {
        "train_inputs": "train-images?idx3-ubyte",
        "train_targets": "train-labels?idx1-ubyte",
        "test_inputs": "t10k-images?idx3-ubyte",
        "test_targets": "t10k-labels?idx1-ubyte",
    }
    return {part: read_idx(_find(folder, pattern, f"{pattern}.gz")) for part, pattern in names.items()}


def read_cifar10(folder: Path) -> dict[str, np.ndarray]:
    """Read CIFAR-10 from the python batches, their archive, or strips of PNG, anywhere below `folder`."""
    archive = next(folder.rglob("cifar-10-python.tar.gz"), None)
    if any(folder.rglob("data_batch_1")):
        return _read_batches(folder)
    if any(folder.rglob("data_batch_1.png")):
        return _read_strips(folder)
    if archive is None:
        raise DataError(
            f"Expected the CIFAR-10 python batches (data_batch_1 … test_batch) or cifar-10-python.tar.gz in "
            f"{folder}, found neither."
        )
    with tempfile.TemporaryDirectory() as unpacked:
        unpack(archive, Path(unpacked))
        return _read_batches(Path(unpacked))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, refusing links and paths that lead out of `folder`."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"Could not unpack {archive}: {error}. Get it again.") from error


def _find(folder: Path, *patterns: str) -> Path:
    for pattern in patterns:
        for path in sorted(folder.rglob(pattern)):
            if path.is_file():
                return path
    raise DataError(f"Expected a file {' or '.join(patterns)} in {folder}, found none.")


def _as_images(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows).reshape(-1, 3, 32, 32)


def _read_batches(folder: Path) -> dict[str, np.ndarray]:
    train = [_read_batch(_find(folder, name)) for name in _BATCHES]
    test = _read_batch(_find(folder, "test_batch"))
    return {
        "train_inputs": np.concatenate([images for images, _ in train]),
        "train_targets": np.concatenate([labels for _, labels in train]),
        "test_inputs": test[0],
        "test_targets": test[1],
    }


def _read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with path.open("rb") as file:
            batch = _ArrayUnpickler(file).load()
        return _as_images(batch[b"data"]), np.asarray(batch[b"labels"], dtype=np.uint8)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not an intact CIFAR-10 batch: {error}. Get it again.") from error


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that can build numpy arrays and nothing else, since a pickle may run any code."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="bytes")

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("numpy._core", "numpy.core"), name) == ("numpy.core.multiarray", "_reconstruct"):
            return _empty_array
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no such batch needs")


def _empty_array(*_: object) -> np.ndarray:
    return np.empty(0, dtype=np.uint8)


def _read_strips(folder: Path) -> dict[str, np.ndarray]:
    """Read the PNG form: a row of 1,024 RGB pixels an image, the labels as JSON lists."""
    return {
        "train_inputs": np.concatenate([_read_strip(_find(folder, f"{name}.png")) for name in _BATCHES]),
        "train_targets": _read_labels(_find(folder, "train_lables.json")),
        "test_inputs": _read_strip(_find(folder, "test_batch.png")),
        "test_targets": _read_labels(_find(folder, "test_lables.json")),
    }


def _read_strip(path: Path) -> np.ndarray:
    image_module = pillow()
    try:
        with image_module.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise DataError(f"{path} is not an intact PNG image: {error}. Get it again.") from error
    return _as_images(pixels.transpose(0, 2, 1))


def _read_labels(path: Path) -> np.ndarray:
    try:
        return np.asarray(json.loads(path.read_text()), dtype=np.uint8)
    except ValueError as error:
        raise DataError(f"{path} is not an intact list of labels: {error}. Get it again.") from error
