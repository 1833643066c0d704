"""A pruned model in a folder: its weights (dense or compressed), its masks and the record of how it came about.

    model.safetensors              the plain state dict (tied weights once), as any reader of safetensors takes it,
    masks.safetensors              and one boolean a weight, True where it is removed; or instead of both
    model.compressed.safetensors   bits and values (see `compressed.py`);
    result.json                    the record of the run, where there is one.

The model's file holds the checksums of the others, and is written last: a folder without it is unfinished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.files.bits import room_of
from brainsurgeon.files.checkpoint import fit, once, stored_state
from brainsurgeon.files.compressed import compress, expand, with_tied
from brainsurgeon.files.masks import read_masks, write_masks
from brainsurgeon.files.sealed import ADVICE, FileError, parse_object, read_sealed, write_sealed
from brainsurgeon.files.writing import check_writable
from brainsurgeon.network.held import held_in
from brainsurgeon.network.names import unwrapped
from brainsurgeon.network.zeros import check_masks, count_zeros, zero_masks

DENSE, COMPRESSED = "model.safetensors", "model.compressed.safetensors"
MASKS, RECORD = "masks.safetensors", "result.json"


@dataclass(frozen=True)
class Saved:
    """What a folder holds, checked: the state dict, the masks (True where a weight is removed) and the record."""

    state: dict[str, Tensor]
    masks: dict[str, Tensor]
    record: dict[str, Any] | None = None

    @property
    def pruned(self) -> int:
        """The number of weights removed."""
        return sum(int(mask.sum()) for mask in self.masks.values())


def save(
    model: nn.Module,
    folder: str | Path,
    masks: Mapping[str, Tensor] | None = None,
    *,
    compressed: bool = False,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write a pruned model into a new or empty folder.

    Args:
        model: a pruned model.
        folder: new, or empty.
        masks: True where a weight is removed; by default the exact zeros of the prunable weights.
        compressed: write bits and values instead of every weight.
        record: what is known of the pruning, as JSON takes it.
    """
    if held := held_in(unwrapped(model)):
        raise FileError(
            f"the model's weights lie {next(iter(held.values())).place}, and are pruned there: it needs no saving, and "
            "brainsurgeon.save_masks(result.masks, path) writes its masks"
        )
    masks = zero_masks(model) if masks is None else check_masks(model, masks)
    count_zeros(model, masks)
    state = stored_state(model)
    if unknown := [name for name in masks if name not in state]:
        raise FileError(f"the masks name {unknown[0]!r}, which is not in the state dict of {type(model).__name__}")
    folder = new_folder(folder)
    seals: dict[str, str] = {}
    if record is not None:
        content = json.dumps(record, indent=2, allow_nan=False).encode()
        (folder / RECORD).write_bytes(content)
        seals["record"] = hashlib.sha256(content).hexdigest()
    if compressed:
        stored, info = compress(state, masks)
        write_sealed(stored, folder / COMPRESSED, "compressed", {**info, **seals})
    else:
        seals["masks"] = write_masks(masks, folder / MASKS, compressed=False)
        stored, tied = once(state)
        write_sealed(stored, folder / DENSE, "dense", {**seals, **({"tied": tied} if tied else {})})
    return folder


class FolderTakenError(FileError, FileExistsError):
    """A place to write to that holds something already."""


def new_folder(folder: str | Path) -> Path:
    """Make a folder, or take an empty one; refuse a place that holds something already."""
    folder = Path(folder)
    _check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror or error}; give another place") from error
    return folder


def check_place(folder: Path) -> None:
    """Refuse a place for a new folder that is taken or cannot be written to, before any work; nothing is left there."""
    _check_free(folder)
    check_writable(next(place for place in (folder, *folder.absolute().parents) if place.exists()))


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise FolderTakenError(f"{folder} {what}: give a new folder, so that nothing is overwritten")


def read(folder: str | Path, model: nn.Module | None = None) -> Saved:
    """Read a folder that `save` wrote, having checked all of it; a model is not needed, but limits what is made."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(f"there is no folder {folder}")
    there = [name for name in (DENSE, COMPRESSED) if (folder / name).exists()]
    if len(there) != 1:
        what = "both" if there else "neither, so it is unfinished or another folder"
        raise FileError(f"expected {DENSE} or {COMPRESSED} in {folder}, found {what}")
    if there == [COMPRESSED]:
        stored, info, _ = read_sealed(folder / COMPRESSED, "compressed")
        state, masks = expand(stored, info, room_of(model))
    else:
        stored, info, _ = read_sealed(folder / DENSE, "dense")
        state = with_tied(stored, info.get("tied", {}))
        masks, seal = read_masks(folder / MASKS, room_of(model))
        if seal != info.get("masks"):
            raise FileError(f"{folder / MASKS} belongs to another model than {DENSE} beside it. {ADVICE}")
    saved = Saved(state, masks, _read_record(folder / RECORD, info.get("record")))
    _check(saved, folder)
    return saved


def load(folder: str | Path, model: nn.Module) -> Saved:
    """Read a folder that `save` wrote into a model of the same kind, shapes and types; refuse what does not fit.

    The model is filled in place; what is returned holds the masks, as `freeze_zeros` and `finetune` take them.
    """
    saved = read(folder, model)
    check_types(model, saved.state, folder)
    fit(model, saved.state, folder)
    check_masks(model, saved.masks)
    return saved


def check_types(model: nn.Module, state: Mapping[str, Tensor], folder: str | Path) -> None:
    """Refuse a model of other types of numbers: what was saved would be rounded."""
    for name, value in stored_state(model).items():
        if name in state and state[name].dtype != value.dtype:
            raise FileError(
                f"{folder} holds {name!r} as {state[name].dtype}, the model as {value.dtype}: convert the model "
                f"first (model.to({state[name].dtype}))"
            )


def _read_record(path: Path, seal: Any) -> dict[str, Any] | None:
    if seal is None:
        return None
    if not path.is_file():
        raise FileError(f"{path} is missing. {ADVICE}")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != seal:
        raise FileError(f"{path} has been changed since it was saved: its checksum is another. {ADVICE}")
    return parse_object(content, path)


def _check(saved: Saved, folder: Path) -> None:
    """Refuse masks that do not fit, pruned weights that are not zero, and counts other than the record's."""
    for name, mask in saved.masks.items():
        tensor = saved.state.get(name)
        if tensor is None or tensor.shape != mask.shape:
            got = "none" if tensor is None else f"one of shape {tuple(tensor.shape)}"
            raise FileError(f"{folder} has a mask of shape {tuple(mask.shape)} for {name!r}, and as its tensor {got}")
        if bool(torch.count_nonzero(tensor[mask])):
            raise FileError(f"{folder}: weights of {name!r} that the mask removes are not zero. {ADVICE}")
    if saved.record is not None and "pruned" in saved.record and saved.record["pruned"] != saved.pruned:
        raise FileError(
            f"{folder}: the record counts {saved.record['pruned']} pruned weights, the masks {saved.pruned}. {ADVICE}"
        )
