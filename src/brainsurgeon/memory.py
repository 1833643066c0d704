"""What fits: said before the work starts, with the setting that would."""

from __future__ import annotations

import bisect
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .blocks import make_blocks
from .errors import BrainsurgeonError
from .settings import Settings
from .weights import PrunableWeights

GIB = 1 << 30
CGROUP = Path("/sys/fs/cgroup")
COPIES = 3
"""Of the model: the user's, the one under examination, the pruned one."""
VECTORS = 60 * 9
"""Bytes a weight for masks and vectors: the draws of Algorithm 2 and their costs above all."""


class DoesNotFitError(BrainsurgeonError):
    """Memory or disk is too small for what was asked."""


def check_device(name: str | torch.device) -> torch.device:
    """Return a device by its name, or say why it cannot be used here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # PyTorch raises either
        reason = str(error).strip().partition("\n")[0]
        raise BrainsurgeonError(f"device {str(name)!r} cannot be used here: {reason}") from error
    return device


def available_bytes(device: torch.device) -> int | None:
    """Return the memory that is free on a device, None where it cannot be known."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, to be used again
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        with open("/proc/meminfo") as lines:
            fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        return int(min(fields["MemAvailable"], _left_to_group()))
    except (OSError, KeyError, ValueError, IndexError):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None


def _left_to_group() -> float:
    """Return what a container's own limit leaves, infinity where there is none."""
    try:
        limit, used = ((CGROUP / name).read_text() for name in ("memory.max", "memory.current"))
        return int(limit) - int(used)
    except (OSError, ValueError):  # no such limit, or "max"
        return float("inf")


def memory_needs(weights: PrunableWeights, model_bytes: int, settings: Settings, gram: bool = False) -> dict[str, int]:
    """Return the bytes that an examination and a search take, part by part; with the Gram matrices of all layers."""
    rows, size = settings.num_gradients, weights.size
    widest = max(block.stop - block.start for block in make_blocks(settings.blocks, weights, rows))
    inputs = [math.prod(layer.shape[1:]) for layer in weights.layers]
    matrices = {"Gram matrices": 2 * 8 * sum(width**2 for width in inputs)} if gram else {}
    return {
        "gradients": rows * size * settings.dtype.itemsize,
        **matrices,
        "factor": 2 * 8 * min(rows, widest) ** 2,
        "masks and vectors": VECTORS * size,
        "copies of the model": COPIES * model_bytes,
    }


def check_memory(
    weights: PrunableWeights, model_bytes: int, settings: Settings, device: torch.device, gram: bool = False
) -> None:
    """Refuse what the device cannot hold, with the settings that would fit."""
    free = available_bytes(device)

    def needed(**changes: Any) -> int:
        return sum(memory_needs(weights, model_bytes, replace(settings, **changes), gram).values())

    if free is None or needed() <= free:
        return
    fitting = bisect.bisect_right(range(1, settings.num_gradients), free, key=lambda rows: needed(num_gradients=rows))
    remedies = []
    if fitting:
        remedies.append(f"num_gradients={fitting} or fewer (means over more samples with gradient_batch)")
    if settings.dtype.itemsize > 2 and needed(dtype=torch.bfloat16) <= free:
        remedies.append("dtype=bfloat16")
    remedies.append("fewer layers (include, exclude)")
    gradients = settings.num_gradients * weights.size * settings.dtype.itemsize
    raise DoesNotFitError(
        f"this run needs about {needed() / GIB:.1f} GiB ({gradients / GIB:.1f} of them for {settings.num_gradients} "
        f"gradients of {weights.size} weights), and {free / GIB:.1f} GiB are free on {device}. "
        f"What would fit: {'; or '.join(remedies)}"
    )


def check_fits(rows: int, size: int, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a K×N matrix that the device cannot hold."""
    needed, free = rows * size * dtype.itemsize, available_bytes(device)
    if free is None or needed * 1.1 < free:
        return
    fitting = int(free / 1.1 / (size * dtype.itemsize))
    raise BrainsurgeonError(
        f"{rows} gradients of {size} weights take {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free on "
        f"{device}: give num_gradients={max(fitting, 1)} or fewer (means over more samples with gradient_batch), or "
        "dtype=torch.bfloat16, or exclude some layers"
    )
