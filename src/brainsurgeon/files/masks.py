"""Masks alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from brainsurgeon.files import bits
from brainsurgeon.files.compressed import KEPT, is_shape
from brainsurgeon.files.sealed import ADVICE, FileError, read_sealed, write_sealed
from brainsurgeon.network.names import plain_names
from brainsurgeon.network.zeros import check_masks

KIND = "masks"


def save_masks(masks: Mapping[str, Tensor], path: str | Path, compressed: bool = True) -> Path:
    """Write masks (True where a weight is removed) to a safetensors file: as bits, or as one boolean a weight."""
    write_masks(masks, Path(path), compressed)
    return Path(path)


def write_masks(masks: Mapping[str, Tensor], path: Path, compressed: bool) -> str:
    """Write masks and return the file's checksum."""
    if not isinstance(masks, Mapping):
        raise FileError(f"masks must be boolean tensors by parameter name, got a {type(masks).__name__}")
    for name, mask in masks.items():
        if not isinstance(name, str) or not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else f"a {type(mask).__name__}"
            raise FileError(f"the mask of {name!r} must be boolean, by the name of its parameter; got {got}")
    names = plain_names({name: name for name in masks})
    if not compressed:
        return write_sealed({plain: masks[name] for plain, name in names.items()}, path, KIND, {})
    shapes, encoded = {}, {}
    for plain, name in names.items():  # one by one: they may be made as they are asked for
        mask = masks[name]
        shapes[plain], encoded[plain + KEPT] = list(mask.shape), bits.encode(mask)
    return write_sealed(encoded, path, KIND, {"shapes": shapes})


def load_masks(path: str | Path, model: nn.Module | None = None) -> dict[str, Tensor]:
    """Read masks from either form, having checked them; with a model, that they fit its parameters too."""
    masks, _ = read_masks(Path(path), bits.room_of(model))
    return masks if model is None else check_masks(model, masks)


def read_masks(path: Path, room: int = 0) -> tuple[dict[str, Tensor], str]:
    """Return the masks of a file and its checksum; what a model may take is `room`."""
    tensors, info, digest = read_sealed(path, KIND)
    if "shapes" not in info:
        if bad := [name for name, mask in tensors.items() if mask.dtype != torch.bool]:
            raise FileError(
                f"{path}: the mask of {bad[0]!r} is of type {tensors[bad[0]].dtype}, expected bool. {ADVICE}"
            )
        return plain_names(tensors), digest
    shapes = info["shapes"]
    if not isinstance(shapes, dict) or not all(map(is_shape, shapes.values())):
        raise FileError(f"{path} does not say the shapes of its masks. {ADVICE}")
    if {name + KEPT for name in shapes} != tensors.keys():
        raise FileError(f"{path}: its description and its masks name different tensors. {ADVICE}")
    bits.check_expansion(sum(map(len, tensors.values())), sum(map(math.prod, shapes.values())), room)
    masks = {name: bits.decode(tensors[name + KEPT], tuple(shape), name) for name, shape in shapes.items()}
    return plain_names(masks), digest
