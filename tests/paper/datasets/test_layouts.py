"""MNIST and CIFAR-10 are read from every layout."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dataset_files import Arrays, write_gz, write_mnist, write_python_archive, write_python_batches, write_strips

from brainsurgeon.paper.datasets import DataError, fetch, load


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
