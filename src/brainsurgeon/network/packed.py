"""Masks as bits: an eighth of a byte a weight, for models of which no more than a part is ever in memory."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import numpy as np
import torch
from torch import Tensor


class PackedMasks(MutableMapping[str, Tensor]):
    """Boolean tensors by name, on the CPU; each is packed when it comes in, and made anew when it is asked for."""

    def __init__(self) -> None:
        self._bits: dict[str, tuple[np.ndarray, torch.Size]] = {}

    def __getitem__(self, name: str) -> Tensor:
        bits, shape = self._bits[name]
        return torch.from_numpy(np.unpackbits(bits, count=shape.numel()).astype(bool)).view(shape)

    def __setitem__(self, name: str, mask: Tensor) -> None:
        self._bits[name] = np.packbits(mask.detach().cpu().numpy().reshape(-1)), mask.shape

    def __delitem__(self, name: str) -> None:
        del self._bits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)

    @property
    def nbytes(self) -> int:
        """The bytes that they take."""
        return sum(bits.nbytes for bits, _ in self._bits.values())
