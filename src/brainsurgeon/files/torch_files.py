"""Reading the files of `torch.save` without running any code that is in them.

A pickle can name any function and have it called. Torch files are therefore only ever read by PyTorch's `weights_only`
reader, which builds tensors and plain containers. Where a file holds other objects beside its weights (an optimizer, a
scheduler), each of their classes is replaced by an inert stand-in.
"""

import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch

from brainsurgeon.errors import BrainsurgeonError

_LEGACY_PICKLES = 4  # magic number, protocol, machine, and then the object itself
_MOST_PICKLE = 64 << 20  # bytes of names and shapes; a million tensors take fewer
_MOST_EXPANSION = 50  # PyTorch stores its archives as they are: one that inflates far beyond itself is no checkpoint
_UNREADABLE = (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, ValueError, RuntimeError, KeyError)


class CheckpointError(BrainsurgeonError):
    """A checkpoint that cannot be read, or does not fit the network."""


class _Inert:
    """Stands for an object we do not rebuild: takes any arguments and any state, and does nothing."""

    def __new__(cls, *args: object, **kwargs: object) -> "_Inert":
        return super().__new__(cls)

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def _plain_dict(*_: object) -> dict[Any, Any]:
    return {}


def read_torch(path: Path) -> Any:
    """Return what a torch file holds: tensors and plain containers, the rest as inert objects."""
    try:
        with path.open("rb") as file:
            names = _globals_named_in(file)
        stand_ins: list[Any] = [(_Inert, name) for name in names - {"collections.defaultdict"}]
        # Names that PyTorch's reader knows itself keep their meaning; only the others become stand-ins.
        with torch.serialization.safe_globals([*stand_ins, (_plain_dict, "collections.defaultdict")]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if "is blocked" in str(error):
            reason = "it would run system commands"
        raise CheckpointError(
            f"{path} cannot be read safely as a torch checkpoint: {reason.rstrip('. ')}. "
            "It is damaged, or holds more than weights; save `model.state_dict()` again where it was made."
        ) from error


def _globals_named_in(file: BinaryIO) -> set[str]:
    """Find the classes and functions a torch file asks for, without unpickling it."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            inside = next((n for n in archive.namelist() if n.endswith("data.pkl")), None)
            if inside is None:
                raise ValueError("the archive holds no data.pkl")
            _check_expansion(archive, archive.getinfo(inside))
            return _global_names(pickletools.genops(archive.read(inside)))
    file.seek(0)
    return {name for _ in range(_LEGACY_PICKLES) for name in _global_names(pickletools.genops(file))}


def _check_expansion(archive: zipfile.ZipFile, pickled: zipfile.ZipInfo) -> None:
    """Refuse an archive that would keep the reader busy, or fill the memory, before it is read."""
    whole = sum(info.file_size for info in archive.infolist())
    stored = sum(info.compress_size for info in archive.infolist())
    if pickled.file_size > _MOST_PICKLE or max(whole / max(stored, 1), _ratio(pickled)) > _MOST_EXPANSION:
        raise ValueError(
            f"its {stored:,} bytes would expand to {whole:,}, {pickled.file_size:,} of them names and shapes"
        )


def _ratio(info: zipfile.ZipInfo) -> float:
    return info.file_size / max(info.compress_size, 1)


def _global_names(operations: Any) -> set[str]:
    found = {argument for code, argument, _ in operations if code.name == "GLOBAL"}
    # Python 2 wrote its builtins under another name; the reader looks them up under the new one.
    return {name.replace(" ", ".").replace("__builtin__.", "builtins.") for name in found}
