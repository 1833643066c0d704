"""Masks alone: written as bits or booleans, read from either, checked."""

from pathlib import Path

import pytest
import torch
from cases import CASES

from brainsurgeon import BrainsurgeonError, load_masks, save_masks
from brainsurgeon.files import FileError
from brainsurgeon.files.sealed import write_sealed

MASKS = {"0.weight": torch.arange(48).view(8, 6) % 3 > 0, "2.weight": torch.zeros(3, 8, dtype=torch.bool)}


@pytest.mark.parametrize("compressed", [False, True])
def test_masks_come_back(compressed: bool, tmp_path: Path) -> None:
    path = save_masks(MASKS, tmp_path / "masks.safetensors", compressed)
    found = load_masks(path, CASES["linear"].model())
    assert found.keys() == MASKS.keys()
    assert all(torch.equal(found[name], mask) for name, mask in MASKS.items())


def test_bits_take_an_eighth_of_the_room(tmp_path: Path) -> None:
    masks = {"w": torch.rand(300, 300, generator=torch.Generator().manual_seed(0)) < 0.5}
    sizes = [save_masks(masks, tmp_path / str(c), compressed=c).stat().st_size for c in (False, True)]
    assert sizes[1] < sizes[0] / 7.5


def test_masks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = save_masks(MASKS, tmp_path / "masks.safetensors")
    with pytest.raises(BrainsurgeonError, match="no parameter of"):
        load_masks(path, CASES["tied"].model())
    with pytest.raises(FileError, match="must be boolean"):
        save_masks({"w": torch.ones(3)}, tmp_path / "other")
    with pytest.raises(FileError, match="there is no file"):
        load_masks(tmp_path / "none")


@pytest.mark.parametrize(
    ("tensors", "info"),
    [
        ({"w": torch.ones(3)}, {}),
        ({"w::kept": torch.ones(1, dtype=torch.uint8)}, {"shapes": [3]}),
        ({"w::kept": torch.ones(1, dtype=torch.uint8)}, {"shapes": {"v": [3]}}),
        ({"w::kept": torch.ones(1, dtype=torch.uint8)}, {"shapes": {"w": [2**40]}}),
    ],
)
def test_a_well_sealed_lie_is_refused(tensors, info, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write_sealed(tensors, tmp_path / "masks", "masks", info)
    with pytest.raises(FileError):
        load_masks(tmp_path / "masks")
