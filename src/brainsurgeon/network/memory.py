"""Devices and the memory that is free on them."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from brainsurgeon.errors import BrainsurgeonError

GIB = 1 << 30
UNITS = ("bytes", "KiB", "MiB")
CGROUP = Path("/sys/fs/cgroup")


class DoesNotFitError(BrainsurgeonError):
    """Memory or disk is too small for what was asked."""


def check_device(name: str | torch.device) -> torch.device:
    """Return a device by its name, or say why it cannot be used here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # PyTorch raises any of these
        reason = str(error).strip().partition("\n")[0]
        raise BrainsurgeonError(f"device {str(name)!r} cannot be used here: {reason}") from error
    return device


def readable(number: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit in UNITS:
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"


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


def check_fits(rows: int, size: int, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a K×N matrix that the device cannot hold."""
    needed, free = rows * size * dtype.itemsize, available_bytes(device)
    if free is None or needed * 1.1 < free:
        return
    fitting = int(free / 1.1 / (size * dtype.itemsize))
    raise BrainsurgeonError(
        f"{rows} gradients of {size} weights take {readable(needed)}, and {readable(free)} are free on "
        f"{device}: give num_gradients={max(fitting, 1)} or fewer (means over more samples with gradient_batch), or "
        "dtype=torch.bfloat16, or exclude some layers"
    )
