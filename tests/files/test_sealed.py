"""A seal covers all that a file says: names, types, shapes, contents and description."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from brainsurgeon.files.checkpoint import save_tensors
from brainsurgeon.files.sealed import FileError, checksum, read_sealed, write_sealed


def tensors() -> dict[str, Tensor]:
    return {"a": torch.arange(6, dtype=torch.float32).view(2, 3), "b": torch.tensor([True, False])}


CHANGES = {
    "another type": lambda t: {**t, "a": t["a"].view(torch.int32)},
    "another type of the same kind": lambda t: {**t, "b": t["b"].view(torch.uint8)},
    "another shape": lambda t: {**t, "a": t["a"].reshape(3, 2)},
    "flat": lambda t: {**t, "a": t["a"].reshape(6)},
    "one dimension more": lambda t: {**t, "a": t["a"].reshape(1, 2, 3)},
    "another name": lambda t: {"c": t["a"], "b": t["b"]},
    "names exchanged": lambda t: {"b": t["a"], "a": t["b"]},
    "one bit": lambda t: {**t, "b": ~t["b"]},
    "one tensor less": lambda t: {"a": t["a"]},
    "one tensor more": lambda t: {**t, "c": torch.zeros(0)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_tensors_changes_the_checksum(change: str) -> None:
    assert checksum(CHANGES[change](tensors()), "{}") != checksum(tensors(), "{}")


def test_the_description_counts_and_the_order_does_not() -> None:
    assert checksum(tensors(), '{"k":1}') != checksum(tensors(), '{"k":2}')
    turned = dict(reversed(tensors().items()))
    assert checksum(turned, "{}") == checksum({name: t.clone() for name, t in tensors().items()}, "{}")


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_changed_under_its_seal_is_refused(change: str, tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    digest = write_sealed(tensors(), path, "test", {"x": 1})
    found, info, seal = read_sealed(path, "test")
    assert seal == digest
    assert info["x"] == 1
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors().items())
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    save_tensors(CHANGES[change](tensors()), path, metadata)
    with pytest.raises(FileError, match="is damaged: its content does not have the checksum it was sealed with"):
        read_sealed(path, "test")
