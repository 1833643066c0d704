"""What a run was made with."""

from __future__ import annotations

import platform

import numpy
import torch

from brainsurgeon._version import __version__


def versions(device: str | torch.device | None = None) -> dict[str, str]:
    """Return the versions and the device, for the record."""
    device = torch.device(device or "cpu")
    threads = f"{torch.get_num_threads()} CPU threads"
    return {
        "brainsurgeon": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else threads,
    }
