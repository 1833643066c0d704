"""A mask as bits: one a weight, set where it is kept, lowest bit first; deflated where that is smaller."""

from __future__ import annotations

import math
import zlib

import numpy as np
import torch
from torch import Tensor, nn

from brainsurgeon.files.sealed import ADVICE, FileError

EXPANSION, FREELY = 500, 2**28
"""Where no model says how large a mask is, a file may expand to so many times its size, or to so many bytes."""


def encode(pruned: Tensor) -> Tensor:
    """Return the bits of a mask as bytes: ⌈N/8⌉ of them, or fewer, which then are a zlib stream of those."""
    kept = (~pruned.detach().cpu()).reshape(-1).numpy()
    bits = np.packbits(kept, bitorder="little").tobytes()
    deflated = zlib.compress(bits, 9)
    return torch.from_numpy(np.frombuffer(min(bits, deflated, key=len), np.uint8).copy())


def decode(code: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """Return the mask of this shape, True where a weight is removed."""
    if code.dtype != torch.uint8 or code.dim() != 1:
        raise FileError(f"the mask of {name!r} must be a row of bytes, got {code.dtype} of shape {tuple(code.shape)}")
    size = math.prod(shape)
    length = -(-size // 8)
    if len(code) > length:
        raise FileError(f"the mask of {name!r} has {len(code)} bytes; {size} weights need {length}. {ADVICE}")
    stored = code.contiguous().numpy().tobytes()
    bits = np.frombuffer(stored if len(code) == length else _inflate(stored, length, name), np.uint8)
    flags = np.unpackbits(bits, bitorder="little")
    if flags[size:].any():
        raise FileError(f"the mask of {name!r} goes on after its {size} weights. {ADVICE}")
    return torch.from_numpy(flags[:size] == 0).reshape(shape)


def _inflate(stored: bytes, length: int, name: str) -> bytes:
    """Inflate to exactly `length` bytes, never more, whatever the stream holds."""
    stream = zlib.decompressobj()
    try:
        bits = stream.decompress(stored, length + 1)
    except zlib.error as error:
        raise FileError(f"the mask of {name!r} cannot be inflated ({error}). {ADVICE}") from error
    if len(bits) != length or not stream.eof or stream.unused_data:
        raise FileError(f"the mask of {name!r} does not hold its {length} bytes. {ADVICE}")
    return bits


def check_expansion(given: int, size: int, room: int = 0) -> None:
    """Refuse to make far more bytes of a file than it has, or than the model that it belongs to has."""
    if size > max(FREELY, EXPANSION * given, room):
        raise FileError(
            f"the file would expand from {given:,} to {size:,} bytes, and is not trusted to be what it says: give the "
            "model that it belongs to (load_masks(path, model), load(folder, model)), whose size is then the limit"
        )


def room_of(model: nn.Module | None) -> int:
    """Return the bytes that what belongs to a model may take: as many as its own, 8 a weight at most."""
    return 0 if model is None else sum(8 * tensor.numel() for tensor in model.parameters())
