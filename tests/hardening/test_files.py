"""Files: either naming, tied weights once, limits before work, buffers called mask, numbers of any kind."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.checkpoint import load_checkpoint, read_state_dict, save_checkpoint
from brainsurgeon.files.sealed import FileError, write_sealed
from brainsurgeon.files.torch_files import CheckpointError
from brainsurgeon.files.writing import plain


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class Wrapped(nn.Module):
    """As `torch.compile` leaves a module."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self._orig_mod = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._orig_mod(x)


@pytest.mark.parametrize("wrap", [Wrapped, nn.DataParallel, lambda m: nn.DataParallel(Wrapped(m)), lambda m: m])
@pytest.mark.parametrize("back", [Wrapped, nn.DataParallel, lambda m: m])
@pytest.mark.parametrize("compressed", [False, True])
def test_prefixes_of_wrappers_are_in_no_file_and_any_model_loads_it(
    tmp_path: Path, wrap: type, back: type, compressed: bool
) -> None:
    result = brainsurgeon.prune(wrap(network()), None, 0.5, "mp")
    assert list(result.masks) == ["0.weight", "2.weight"]
    result.save(tmp_path / "m", compressed=compressed)
    model = network()
    brainsurgeon.load(tmp_path / "m", back(model))
    assert torch.equal(model[0].weight, result.model.get_parameter("0.weight"))
    assert int((model[0].weight == 0).sum() + (model[2].weight == 0).sum()) == 36


def test_masks_with_prefixes_still_fit(tmp_path: Path) -> None:
    result = brainsurgeon.prune(network(), None, 0.5, "mp")
    old = {f"module._orig_mod.{name}": mask for name, mask in result.masks.items()}
    brainsurgeon.save(result.model, tmp_path / "m", old)
    brainsurgeon.save_masks(old, tmp_path / "masks")
    assert list(brainsurgeon.load_masks(tmp_path / "masks", result.model)) == list(result.masks)
    optimizer = torch.optim.SGD(result.model.parameters(), 0.1)
    assert brainsurgeon.freeze_zeros(nn.DataParallel(result.model), optimizer, old).count() == 36


def test_a_model_with_a_child_called_module_reads_its_own_checkpoint(tmp_path: Path) -> None:
    model = nn.Module()
    model.module, model.head = nn.Linear(3, 3), nn.Linear(3, 2)
    save_checkpoint(model, tmp_path / "m.safetensors")
    load_checkpoint(model, tmp_path / "m.safetensors")


def test_a_compiled_submodule_is_named_plainly() -> None:
    model = nn.Sequential(torch.compile(nn.Sequential(nn.Linear(6, 8))), nn.Linear(8, 3))
    result = brainsurgeon.prune(model, None, 0.5, "mp")
    assert list(result.masks) == ["0.0.weight", "1.weight"]


@pytest.mark.parametrize("compressed", [False, True])
def test_tied_weights_are_stored_once(tmp_path: Path, compressed: bool) -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False))
    model[2].weight = model[0].weight
    result = brainsurgeon.prune(model, None, 0.5, "mp")
    result.save(tmp_path / "m", compressed=compressed)
    (file,) = (tmp_path / "m").glob("model*.safetensors")
    assert file.stat().st_size < 64 * 64 * 4 * 1.3
    other = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False))
    brainsurgeon.load(tmp_path / "m", other)  # not tied itself
    assert torch.equal(other[2].weight, result.model[2].weight)
    save_checkpoint(result.model, tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").stat().st_size < 64 * 64 * 4 * 1.3
    load_checkpoint(model, tmp_path / "c.safetensors")


def test_buffers_called_mask_come_back(tmp_path: Path) -> None:
    model = nn.Module()
    model.attention = nn.Linear(4, 4)
    model.attention.register_buffer("causal_mask", torch.ones(4, 4).tril())
    model.register_buffer("mask", torch.ones(3))
    save_checkpoint(model, tmp_path / "m.safetensors")
    torch.save(model.state_dict(), tmp_path / "m.pt")
    for name in ("m.safetensors", "m.pt"):
        assert set(read_state_dict(tmp_path / name)) == set(model.state_dict())
        load_checkpoint(model, tmp_path / name)


def test_saving_over_something_is_refused_in_words(tmp_path: Path) -> None:
    result = brainsurgeon.prune(network(), None, 0.5, "mp")
    result.save(tmp_path / "m")
    (tmp_path / "file").write_text("")
    with pytest.raises(BrainsurgeonError, match="is not empty: give a new folder"):
        result.save(tmp_path / "m")
    with pytest.raises(BrainsurgeonError, match="is a file: give a new folder"):
        result.save(tmp_path / "file")
    with pytest.raises(BrainsurgeonError, match="cannot be made"):
        result.save(tmp_path / "file" / "below")


@pytest.mark.parametrize("sparsity", [np.float32(0.9), np.float64(0.9), Fraction(9, 10)])
def test_numbers_of_any_kind_are_saved_as_what_was_meant(tmp_path: Path, sparsity: float) -> None:
    budget = {"0.weight": sparsity}
    result = brainsurgeon.prune(network(), None, sparsity, "mp", budget=budget)
    assert (result.sparsity, result.pruned) == (0.9, 65)
    result.save(tmp_path / "m")
    again = brainsurgeon.PruningResult.load(tmp_path / "m", network())
    assert again.sparsity == 0.9


def test_plain_has_a_word_for_everything() -> None:
    given = {1: [np.int64(3), np.float32(0.5), float("nan"), Fraction(1, 4), True, None, torch.float32]}
    assert json.loads(json.dumps(plain(given))) == {"1": [3, 0.5, None, 0.25, True, None, "torch.float32"]}


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save(
        {"weight_orig": torch.zeros(1).expand(100_000, 100_000), "weight_mask": torch.ones(1)}, tmp_path / "e.pt"
    )
    with pytest.raises(CheckpointError, match="larger than what is stored"):
        read_state_dict(tmp_path / "e.pt")


def test_a_small_mask_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    import zlib

    size = 2**31
    code = torch.frombuffer(bytearray(zlib.compress(bytes(size // 8), 9)), dtype=torch.uint8)
    write_sealed({"0.weight::kept": code}, tmp_path / "m", "masks", {"shapes": {"0.weight": [size]}})
    for model in (None, network()):
        with pytest.raises(FileError, match="would expand"):
            brainsurgeon.load_masks(tmp_path / "m", model)


@pytest.mark.parametrize("masks", [[torch.ones(2)], {"0.weight": [1]}, {0: torch.ones(8, 6, dtype=torch.bool)}, None])
def test_masks_of_the_wrong_kind_are_refused_in_words(tmp_path: Path, masks: object) -> None:
    with pytest.raises(BrainsurgeonError, match="mask"):
        brainsurgeon.save_masks(masks, tmp_path / "m")  # type: ignore[arg-type]
    if masks is not None:
        with pytest.raises(BrainsurgeonError, match="mask"):
            brainsurgeon.save(network(), tmp_path / "n", masks)  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_truncated_files_are_refused(tmp_path: Path, cut: int) -> None:
    buffer = io.BytesIO()
    torch.save(network().state_dict(), buffer)
    for name, content in (("c.pt", buffer.getvalue()),):
        (tmp_path / name).write_bytes(content[:cut])
        with pytest.raises(CheckpointError):
            read_state_dict(tmp_path / name)
