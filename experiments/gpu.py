"""The engine on a GPU: the same results as on the CPU within tolerance, and its timings.

python -m experiments.gpu --checkpoints FOLDER [--data FOLDER] [--output FILE.json]
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from experiments.networks import examined, prepare
from experiments.records import BENCHMARKS, write

METHODS = ("mp", "wf-s", "wf", "mp+cbs-u", "cbs-s", "cbs")


def measure(network: str, device: str, options: argparse.Namespace, gradients: int) -> dict[str, Any]:
    """Prune by every method on one device; return seconds, accuracies and masks."""
    surgery, data = prepare(network, options.checkpoints, options.data, device, num_gradients=gradients)
    found: dict[str, Any] = {"gradients": examined(surgery).seconds["gradients"]}
    for method in METHODS:
        start = time.perf_counter()
        result = surgery.prune(0.9, method)
        found[method] = {
            "seconds": time.perf_counter() - start,
            "accuracy": accuracy(result.model, data),
            "masks": torch.cat([mask.flatten().cpu() for mask in result.masks.values()]),
        }
    return found


def compare(network: str, options: argparse.Namespace, gradients: int, few: int) -> dict[str, Any]:
    """Time one network on the GPU, and compare its masks with the CPU's from `few` gradients."""
    measure(network, "cuda", options, 64)  # warm-up: kernels are loaded once
    gpu = measure(network, "cuda", options, gradients)
    small = {device: measure(network, device, options, few) for device in ("cpu", "cuda")}
    agreement = {
        method: {
            "same_mask": float((small["cpu"][method]["masks"] == small["cuda"][method]["masks"]).double().mean()),
            "accuracy_cpu": small["cpu"][method]["accuracy"],
            "accuracy_gpu": small["cuda"][method]["accuracy"],
        }
        for method in METHODS
    }
    return {
        "seconds": {"gradients": gpu["gradients"], **{method: gpu[method]["seconds"] for method in METHODS}},
        "accuracy": {method: gpu[method]["accuracy"] for method in METHODS},
        "agreement": agreement,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare both networks and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "gpu-h200.json")
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {"versions": versions("cuda")}
    for network, gradients, few in (("mlpnet", 10_000, 1000), ("resnet20", 1000, 200)):
        report[network] = compare(network, options, gradients, few)
    print(json.dumps(report, indent=2))
    write(options.output, report)


if __name__ == "__main__":
    main()
