"""Accuracy with gradients stored in bfloat16 against float32: MLPNet, K = 10,000.

python -m experiments.bfloat16 FOLDER_OF_CHECKPOINTS [--seeds N] [--output FILE.json]
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from experiments.networks import prepare
from experiments.records import BENCHMARKS, write


def main(arguments: Sequence[str] | None = None) -> None:
    """Prune with both types and write the accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "bfloat16-mlpnet.json")
    options = parser.parse_args(arguments)
    found: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        for dtype in (torch.float32, torch.bfloat16):
            surgery, data = prepare("mlpnet", options.checkpoints, seed=seed, dtype=dtype)
            for sparsity in (0.9, 0.95, 0.98):
                for method in ("cbs-s", "cbs"):
                    result = surgery.prune(sparsity, method)
                    found.setdefault(f"{method} {sparsity} {dtype}", []).append(accuracy(result.model, data))
    summary = {key: {"mean": statistics.mean(values), "seeds": values} for key, values in sorted(found.items())}
    print(json.dumps(summary, indent=2))
    write(options.output, {**summary, "versions": versions("cpu")})


if __name__ == "__main__":
    main()
