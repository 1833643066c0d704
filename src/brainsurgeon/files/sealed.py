"""A safetensors file that carries a description of itself and a SHA-256 of all of it.

The seal tells damage, not forgery: whoever changes a file on purpose can seal it again. What a file says of itself is
therefore checked wherever it is used, and nothing in it is ever run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.checkpoint import save_tensors

VERSION = 1
ADVICE = "Save it again where it was made, or get another copy."


class FileError(BrainsurgeonError):
    """A file that is missing, damaged, or not what it should be."""


def write_sealed(tensors: Mapping[str, Tensor], path: Path, kind: str, info: Mapping[str, Any]) -> str:
    """Write tensors with what there is to say of them, and return the checksum."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_meta:
            got = f"a {tensor.layout} tensor" if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
            raise FileError(f"{name!r} must be a plain tensor to be saved, got {got}")
    described = json.dumps({"version": VERSION, "kind": kind, **info}, sort_keys=True, separators=(",", ":"))
    digest = checksum(tensors, described)
    save_tensors(tensors, path, {"format": "pt", "brainsurgeon": described, "sha256": digest})
    return digest


def read_sealed(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """Return the tensors of an intact file of this kind, what it says of them, and its checksum."""
    if not path.is_file():
        raise FileError(f"there is no file {path}")
    tensors, metadata = _read(path)
    if "brainsurgeon" not in metadata or "sha256" not in metadata:
        raise FileError(
            f"{path} was not written by brainsurgeon, or has lost its description: expected a {kind} file. "
            "brainsurgeon.files.checkpoint.load_checkpoint reads plain checkpoints"
        )
    if checksum(tensors, metadata["brainsurgeon"]) != metadata["sha256"]:
        raise FileError(f"{path} is damaged: its content does not have the checksum it was sealed with. {ADVICE}")
    info = parse_object(metadata["brainsurgeon"], path)
    if info.get("version") != VERSION:
        raise FileError(
            f"{path} is of version {info.get('version')!r}; this release reads version {VERSION}: update brainsurgeon"
        )
    if info.get("kind") != kind:
        raise FileError(f"{path} holds {info.get('kind')!r}, expected {kind!r}")
    return tensors, info, metadata["sha256"]


def checksum(tensors: Mapping[str, Tensor], description: str) -> str:
    """Return the SHA-256 of names, types, shapes, contents and description."""
    digest = hashlib.sha256(description.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def parse_object(text: str | bytes, path: Path) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} holds JSON that cannot be read ({error}). {ADVICE}") from error
    if not isinstance(parsed, dict):
        raise FileError(f"{path} holds a JSON {type(parsed).__name__} where an object was expected. {ADVICE}")
    return parsed


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError, OSError) as error:
        raise FileError(f"{path} is not an intact safetensors file: {error}. {ADVICE}") from error
