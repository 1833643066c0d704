"""Accuracy with gradients stored in bfloat16 against float32: MLPNet, K = 10,000.

python benchmarks/bfloat16.py FOLDER_OF_CHECKPOINTS [--seeds N] [--output FILE.json]
"""

import argparse
import json
import statistics
from pathlib import Path

import torch

from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.surgery import Surgery


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    protocol = PROTOCOLS["mlpnet"]
    model, data = load_network(protocol, [options.checkpoints]), load_images(protocol)
    found: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        for dtype in (torch.float32, torch.bfloat16):
            surgery = Surgery(model, data.train(), seed=seed, dtype=dtype, progress=False, **protocol.settings)
            for sparsity in (0.9, 0.95, 0.98):
                for method in ("cbs-s", "cbs"):
                    result = surgery.prune(sparsity, method)
                    found.setdefault(f"{method} {sparsity} {dtype}", []).append(accuracy(result.model, data))
    summary = {key: {"mean": statistics.mean(values), "seeds": values} for key, values in sorted(found.items())}
    print(json.dumps(summary, indent=2))
    if options.output:
        options.output.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
