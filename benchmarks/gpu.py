"""The engine on a GPU: the same results as on the CPU within tolerance, and its timings.

python benchmarks/gpu.py --checkpoints FOLDER [--data FOLDER] [--output FILE.json]
"""

import argparse
import json
import time
from pathlib import Path

import torch

from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network, training_samples
from brainsurgeon.pruning.surgery import Surgery

METHODS = ("mp", "wf-s", "wf", "mp+cbs-u", "cbs-s", "cbs")


def examine(network: str, device: str, checkpoints: Path, root: Path | None, gradients: int) -> tuple[dict, Surgery]:
    protocol = PROTOCOLS[network]
    data = load_images(protocol, root)
    model = load_network(protocol, [checkpoints]).to(device)
    settings = {**protocol.settings, "num_gradients": gradients}
    start = time.perf_counter()
    surgery = Surgery(model, training_samples(protocol, data, 0), seed=0, progress=False, **settings)
    found: dict = {"gradients": surgery.clock.seconds["gradients"], "examine": time.perf_counter() - start}
    for method in METHODS:
        start = time.perf_counter()
        result = surgery.prune(0.9, method)
        masks = torch.cat([mask.flatten().cpu() for mask in result.masks.values()])
        found[method] = {
            "seconds": time.perf_counter() - start,
            "accuracy": accuracy(result.model, data),
            "masks": masks,
            "loss": result.loss_after,
        }
    return found, surgery


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    report: dict = {"versions": versions("cuda")}
    for network, gradients in (("mlpnet", 10_000), ("resnet20", 1000)):
        examine(network, "cuda", options.checkpoints, options.data, 64)  # warm-up: kernels are loaded once
        gpu, _ = examine(network, "cuda", options.checkpoints, options.data, gradients)
        few = 1000 if network == "mlpnet" else 200  # the comparison needs no full size
        small = {d: examine(network, d, options.checkpoints, options.data, few)[0] for d in ("cpu", "cuda")}
        report[network] = {
            "seconds": {"gradients": gpu["gradients"], **{m: gpu[m]["seconds"] for m in METHODS}},
            "accuracy": {m: gpu[m]["accuracy"] for m in METHODS},
            "agreement": {
                m: {
                    "same_mask": float((small["cpu"][m]["masks"] == small["cuda"][m]["masks"]).double().mean()),
                    "accuracy_cpu": small["cpu"][m]["accuracy"],
                    "accuracy_gpu": small["cuda"][m]["accuracy"],
                }
                for m in METHODS
            },
        }
    text = json.dumps(report, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
