"""Peak memory of a whole run, in a process of its own: python -m experiments.engine_memory NETWORK SPARSITY DTYPE."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from brainsurgeon.paper.reproduce.protocol import PROTOCOLS
from brainsurgeon.pruning.surgery import Surgery
from experiments.engine_speed import subject
from experiments.records import ROOT


def memory(checkpoints: Path | None) -> dict[str, Any]:
    """Return the peak of each case against the bytes of the gradients."""
    cases = [
        (network, sparsity, dtype)
        for network in ("resnet20", "mlpnet")
        for sparsity in ("0.5", "0.9")
        for dtype in ("float32", "bfloat16")
    ]
    found = {}
    for case in cases:
        command = [sys.executable, "-m", "experiments.engine_memory", *case]
        command += ["--checkpoints", str(checkpoints.resolve())] if checkpoints else []
        printed = subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout
        found[" ".join(case)] = json.loads(printed)
    return {"memory": found}


def high_water() -> int:
    """Return the most memory this process has held so far, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def peak(network: str, sparsity: float, dtype: torch.dtype, checkpoints: Path | None) -> dict[str, Any]:
    """Prune once and return what it took.

    The process with Python, torch, the model and the data, before the run, is not ours to shrink.
    """
    model, data = subject(network, checkpoints)
    before = high_water()
    surgery = Surgery(model, data, progress=False, dtype=dtype, **PROTOCOLS[network].settings)
    surgery.prune(sparsity, "cbs")
    top = high_water()
    gradients = surgery.weights.size * surgery.settings["num_gradients"] * dtype.itemsize
    return {
        "gradients_mb": gradients / 1e6,
        "start_mb": before / 1e6,
        "peak_over_start_mb": (top - before) / 1e6,
        "within_bound": top - before <= 1.3 * gradients + 500e6,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the peak of one case as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("sparsity", type=float)
    parser.add_argument("dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--checkpoints", type=Path)
    options = parser.parse_args(arguments)
    found = peak(options.network, options.sparsity, getattr(torch, options.dtype), options.checkpoints)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
