"""A shrunk network in a folder: its weights, what was cut where, and the record of the run.

model.safetensors   the plain state dict, as any reader of safetensors takes it, sealed, with the cuts in its header
result.json         the record
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from brainsurgeon.files.checkpoint import fit, once, stored_state
from brainsurgeon.files.compressed import with_tied
from brainsurgeon.files.folder import DENSE, RECORD, check_types, new_folder
from brainsurgeon.files.sealed import ADVICE, FileError, read_sealed, write_sealed
from brainsurgeon.files.writing import plain
from brainsurgeon.network.names import unwrapped
from brainsurgeon.pruning.surgery import copied
from brainsurgeon.structured.attention import close_attention, open_attention
from brainsurgeon.structured.remove import Cuts, remove
from brainsurgeon.structured.trial import stored_shapes

if TYPE_CHECKING:
    from brainsurgeon.structured.result import ShrinkResult

KIND = "shrunk"


def save_shrunk(result: ShrinkResult, folder: str | Path) -> Path:
    """Write a result into a new or empty folder; the model's file comes last and seals the record."""
    folder = new_folder(folder)
    content = json.dumps(plain(result.to_dict()), indent=2, allow_nan=False).encode()
    (folder / RECORD).write_bytes(content)
    stored, tied = once(stored_state(result.model))
    cuts = [[name, axis, kept.tolist()] for (name, axis), kept in result.cuts.kept.items()]
    numbers = [[module, name, value] for (module, name), value in result.cuts.numbers.items()]
    info = {"cuts": cuts, "numbers": numbers, "tied": tied, "record": hashlib.sha256(content).hexdigest()}
    write_sealed(stored, folder / DENSE, KIND, info)
    return folder


def load_shrunk(folder: str | Path, model: nn.Module) -> nn.Module:
    """Return a smaller copy of a model of the kind that was shrunk, with the weights that `save` wrote.

    The model's own weights do not matter; it is left as it is. What a file says is checked before it is done.
    """
    path = Path(folder) / DENSE
    stored, info, _ = read_sealed(path, KIND)
    small = copied(unwrapped(model))
    open_attention(small)
    try:
        remove(small, _read_cuts(info, small))
        close_attention(small, unwrapped(model))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        raise FileError(
            f"{path} does not fit {type(model).__name__} ({type(error).__name__}: {error}): give a model of the kind "
            "that was shrunk"
        ) from error
    state = with_tied(stored, info.get("tied", {}))
    check_types(small, state, path)
    return fit(small, state, path)


def _read_cuts(info: dict[str, Any], model: nn.Module) -> Cuts:
    kept = {}
    shapes = stored_shapes(model)
    for name, axis, indices in info["cuts"]:
        size = shapes[name][axis]
        rising = all(isinstance(i, int) and 0 <= i < size for i in indices) and indices == sorted(set(indices))
        if not indices or not rising:
            raise ValueError(f"the kept indices of {name} are not among its {size}")
        kept[name, int(axis)] = torch.tensor(indices)
    numbers = {}
    for module, name, value in info["numbers"]:
        held = vars(model.get_submodule(module)).get(name)
        if type(held) is not int or type(value) is not int or not 0 < value <= held:
            raise ValueError(f"{module}.{name} holds {held!r}, and cannot become {value!r}. {ADVICE}")
        numbers[module, name] = value
    return Cuts(kept, numbers)
