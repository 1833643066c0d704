"""What fits: said before the work starts, with the setting that would."""

from __future__ import annotations

import os

import torch

from .errors import BrainsurgeonError

GIB = 1 << 30


def available_bytes(device: torch.device) -> int | None:
    """Return the memory that is free on a device, None where it cannot be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as lines:
            fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        return fields["MemAvailable"]
    except (OSError, KeyError, ValueError, IndexError):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None


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
