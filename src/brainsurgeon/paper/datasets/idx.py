"""The idx format of MNIST: a header of four bytes, the shape, then the values. Safe, plain, deterministic."""

import gzip
import math
from pathlib import Path

import numpy as np

from brainsurgeon.paper.datasets.images import DataError

_UINT8 = 0x08


def decode_idx(content: bytes | np.ndarray, where: str) -> np.ndarray:
    """Read the bytes of an idx file of uint8 values into an array; `where` names it in errors."""
    data = np.frombuffer(content, dtype=np.uint8)
    if len(data) < 4 or data[0] or data[1] or data[2] != _UINT8:
        raise DataError(f"Expected an idx file of bytes in {where}, got something else. Fetch it again.")
    header = 4 + 4 * int(data[3])
    if len(data) < header:
        raise DataError(f"Expected an idx file in {where}, got only part of its header. Fetch it again.")
    shape = tuple(int(extent) for extent in data[4:header].view(">u4"))
    if len(data) != header + math.prod(shape):
        raise DataError(
            f"Expected {header + math.prod(shape):,} bytes in {where} by its header, got {len(data):,}: "
            "the file is truncated or damaged. Fetch it again."
        )
    return data[header:].reshape(shape)


def encode_idx(array: np.ndarray) -> bytes:
    """Write an array of uint8 values as the bytes of an idx file."""
    if array.dtype != np.uint8:
        raise TypeError(f"Expected uint8 values, got {array.dtype}.")
    shape = np.array(array.shape, dtype=">u4").tobytes()
    return bytes([0, 0, _UINT8, array.ndim]) + shape + array.tobytes()


def read_idx(path: Path) -> np.ndarray:
    """Read an idx file, gzipped or not."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        raise DataError(f"Could not read {path}: {error}. The file is damaged; get it again.") from error
    return decode_idx(content, str(path))
