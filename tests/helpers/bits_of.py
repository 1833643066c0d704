"""Tensors compared bit by bit."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def same_bits(one: Tensor, other: Tensor) -> bool:
    bits = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)
