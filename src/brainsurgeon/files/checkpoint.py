"""Saving networks, and reading the checkpoints of others without running any code that is in them.

A pickle can name any function and have it called. Torch files are therefore only ever read by PyTorch's
`weights_only` reader, which builds tensors and plain containers. Where a file holds other objects beside
its weights (an optimizer, a scheduler), each of their classes is replaced by an inert stand-in.
"""

import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.writing import write_whole

_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
_LEGACY_PICKLES = 4  # magic number, protocol, machine, and then the object itself
_LISTED = 5  # names shown in an error
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


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the weights in a safetensors or torch file, by their plain names.

    The usual wrappings are taken off: `state_dict` and its like, the `module.` of data-parallel
    training, the `_layer` of masked layers, whose masks are dropped. The pair `weight_orig`,
    `weight_mask` of `torch.nn.utils.prune` becomes the pruned `weight`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    for key in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    found = dict(content) if isinstance(content, Mapping) else {}
    state = _plain_names({name: value for name, value in found.items() if isinstance(value, Tensor)})
    if not state:
        came = f"the keys {_listed(list(map(str, found)))}" if found else f"a {type(content).__name__}"
        raise CheckpointError(
            f"Expected named tensors in {path}, alone or under one of {', '.join(_WRAPPERS)}; found {came}. "
            "Save `model.state_dict()` and read that."
        )
    return state


def load_checkpoint(model: nn.Module, path: str | Path) -> nn.Module:
    """Load the weights in `path` into `model`, all of them and nothing else, and give it back."""
    return fit(model, read_state_dict(path), path)


def fit(model: nn.Module, state: dict[str, Tensor], path: str | Path) -> nn.Module:
    """Put a state dict into `model`, all of it and nothing else, or say what does not fit; `path` is its origin."""
    expected = model.state_dict()
    for name in expected:  # some writers leave out this counter, which has no effect once trained
        if name.endswith("num_batches_tracked"):
            state.setdefault(name, expected[name])
    problems = []
    if missing := [name for name in expected if name not in state]:
        problems.append(f"it lacks {_listed(missing)}")
    if unknown := [name for name in state if name not in expected]:
        problems.append(f"the network has no {_listed(unknown)}")
    shapes = [
        f"{name} (network {tuple(expected[name].shape)}, file {tuple(value.shape)})"
        for name, value in state.items()
        if name in expected and expected[name].shape != value.shape
    ]
    if shapes:
        problems.append(f"the shapes differ for {_listed(shapes)}")
    if problems:
        raise CheckpointError(
            f"{path} does not fit {type(model).__name__}: {'; '.join(problems)}. "
            "Build the network with the kind, depth and width it was trained with."
        )
    model.load_state_dict(state)
    return model


def save_checkpoint(model: nn.Module, path: str | Path, metadata: dict[str, str] | None = None) -> None:
    """Write the weights of `model` as safetensors; the file appears whole or not at all."""
    save_tensors(model.state_dict(), path, metadata)


def save_tensors(tensors: Mapping[str, Tensor], path: str | Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors by name as safetensors, those that share memory once a name."""
    from safetensors.torch import save

    copies = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    write_whole(Path(path), save(copies, metadata))  # its own save_file would make the file private to us


def _plain_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    plain = {}
    for name, value in state.items():
        if name.rpartition(".")[2].endswith("mask"):
            continue
        if name.endswith("_orig"):
            name = name.removesuffix("_orig")
            value = value * state.get(f"{name}_mask", torch.ones(()))
        plain[name.removeprefix("module.").replace("._layer.", ".")] = value
    return plain


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not an intact safetensors file: {error}.") from error


def _read_torch(path: Path) -> Any:
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
            pickles = [archive.read(inside)]
        return {name for content in pickles for name in _global_names(pickletools.genops(content))}
    file.seek(0)
    return {name for _ in range(_LEGACY_PICKLES) for name in _global_names(pickletools.genops(file))}


def _global_names(operations: Any) -> set[str]:
    found = {argument for code, argument, _ in operations if code.name == "GLOBAL"}
    # Python 2 wrote its builtins under another name; the reader looks them up under the new one.
    return {name.replace(" ", ".").replace("__builtin__.", "builtins.") for name in found}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
