"""A language model whose weights stay in the safetensors files of a folder, and come into memory part by part.

The folder is a copy of the one that it was loaded from, so that pruned weights can be written into it one tensor at a
time; at the end it is the pruned model, as `from_pretrained` reads it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.sealed import FileError
from brainsurgeon.network.held import Held, hold
from brainsurgeon.network.memory import DoesNotFitError, readable

INDEX = "model.safetensors.index.json"
OTHERS = ("*.bin", "*.pth", "*.pt", "*.gguf", "*.h5", "*.msgpack", "*.onnx", ".*")
"""Weights in other forms, which are not copied."""
TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
AGAIN = "load it into memory (without on_disk), and write it anew with its own save_pretrained"


@dataclass(frozen=True)
class InFile:
    """A tensor in a safetensors file: its bytes begin at `start`."""

    path: Path
    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    writable: bool = True
    device = torch.device("cpu")
    place = "in the files of a folder"

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def fetch(self) -> Tensor:
        """Read the values."""
        content = bytearray(self.nbytes)
        with self.path.open("rb") as file:
            file.seek(self.start)
            if file.readinto(content) != self.nbytes:
                raise FileError(f"{self.path} ends too early: copy or load it again")
        return torch.frombuffer(content, dtype=self.dtype).view(self.shape) if content else torch.empty(self.shape)

    def put(self, values: Tensor) -> None:
        """Write new values over the old."""
        if not self.writable:
            raise BrainsurgeonError(
                f"{self.path} is the original, which is not written to: give a new folder for the pruned model"
            )
        plain = values.detach().to("cpu", self.dtype).contiguous().reshape(-1)
        with self.path.open("r+b") as file:
            file.seek(self.start)
            file.write(plain.view(torch.uint8).numpy().data)


def load_on_disk(folder: Path, copy: Path | None) -> nn.Module:
    """Return a causal language model whose weights stay in a copy of its folder; nothing of them is read yet.

    Without a place for the copy it can be looked at, but not pruned.
    """
    files, place = weight_files(folder), copy or folder
    if copy is not None:
        copy_folder(folder, copy)
    stored = {name: tensor for file in files for name, tensor in read_header(place / file, copy is not None).items()}
    model = _empty(place)
    hold(model, _matched(model, stored))
    return model.eval()


def weight_files(folder: Path) -> list[str]:
    """Return the names of the safetensors files that hold a folder's weights."""
    if (folder / INDEX).is_file():
        try:
            found = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileError(f"{folder / INDEX} is no index of safetensors files: {error}") from error
    else:
        found = [path.name for path in sorted(folder.glob("*.safetensors"))]
    missing = [name for name in found if Path(str(name)).name != name or not (folder / name).is_file()]
    if missing or not found:
        what = f"{missing[0]!r} is missing" if missing else "there is none"
        raise FileError(f"{folder} must hold its weights as safetensors to be read part by part, and {what}: {AGAIN}")
    return found


def bytes_of(folder: Path) -> int:
    """Return the bytes of a folder's weights."""
    return sum((folder / name).stat().st_size for name in weight_files(folder))


def copy_folder(folder: Path, copy: Path) -> None:
    """Copy a folder, but for weights in other forms, to where there is nothing yet."""
    if copy.exists() and (not copy.is_dir() or any(copy.iterdir())):
        raise FileError(f"{copy} is there already and not empty: give a new folder for the pruned model")
    copy.parent.mkdir(parents=True, exist_ok=True)
    needed, free = bytes_of(folder), shutil.disk_usage(copy.parent).free
    if needed > free:
        raise DoesNotFitError(
            f"a copy of {folder} takes {readable(needed)}, and {readable(free)} are free at {copy.parent}: make room, "
            "or give another place"
        )
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*OTHERS), dirs_exist_ok=True)
    for path in copy.glob("*.safetensors"):
        path.chmod(0o644)


def read_header(path: Path, writable: bool = True) -> dict[str, InFile]:
    """Return the tensors of a safetensors file by name; the library itself checks that the file is sound."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as checked:
            names = set(checked.keys())
    except SafetensorError as error:
        raise FileError(f"{path} is no sound safetensors file ({error}): copy or download it again") from error
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    return {
        name: InFile(path, 8 + size + info["data_offsets"][0], TYPES[info["dtype"]], tuple(info["shape"]), writable)
        for name, info in header.items()
        if name in names and info["dtype"] in TYPES
    }


def _empty(folder: Path) -> Any:
    """Return the model that a folder describes, with placeholders for its parameters; its buffers are there."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with _placeholders():
            model = AutoModelForCausalLM.from_config(config)
            model.tie_weights()
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise BrainsurgeonError(f"{folder} cannot be loaded as a causal language model: {error}") from error
    return model


@contextmanager
def _placeholders() -> Iterator[None]:
    """Let every parameter that is registered be a placeholder on the meta device."""
    own = nn.Module.register_parameter

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        own(module, name, parameter)

    try:
        type.__setattr__(nn.Module, "register_parameter", register)
        yield
    finally:
        type.__setattr__(nn.Module, "register_parameter", own)


def _matched(model: Any, stored: dict[str, InFile]) -> Held:
    """Return the place in the files of every parameter, and read the buffers that are there."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    held: dict[Tensor, InFile] = {}
    missing = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names = (name, name.removeprefix(prefix), f"{prefix}{name}")
        found = next((stored[each] for each in names if each in stored), None)
        if found is not None and found.shape == parameter.shape:
            held.setdefault(parameter, found)
        elif parameter not in held:
            missing.append((name, parameter))
    if lost := [name for name, parameter in missing if parameter not in held]:
        raise FileError(f"{lost[0]!r} of {type(model).__name__} is in none of the files, or of another shape: {AGAIN}")
    for parameter, place in held.items():
        parameter.data = parameter.data.to(place.dtype)  # the files say of which type the values are
    for name, buffer in model.named_buffers():
        if name in stored and stored[name].shape == buffer.shape:
            buffer.copy_(stored[name].fetch())
    return {**held}
