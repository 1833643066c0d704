"""Prune the paper's networks in stages (method "staged") and record what is reached, with what it cost.

    python -m experiments.beyond resnet20 --samples 1000 --checkpoints FOLDER [--device cuda] [--data FOLDER]

Every finished run is a line of experiments/results/beyond-NETWORK-SAMPLES.jsonl and is not computed again.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.prune import prune
from brainsurgeon.pruning.staged.schedule import Stages
from experiments.records import RESULTS, Record, append, read_runs

SPARSITIES = {
    "mlpnet": (0.5, 0.7, 0.8, 0.9, 0.95, 0.98),
    "resnet20": (0.5, 0.7, 0.8, 0.9),
    "mobilenet-0.75": (0.5, 0.6, 0.7, 0.8),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    protocol = PROTOCOLS[options.network]
    images = load_images(protocol, options.data)
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    path = options.results / f"beyond-{options.network}-{options.samples or 'all'}.jsonl"
    for sparsity in options.sparsities or SPARSITIES[options.network]:
        for seed in options.seeds:
            key = {
                "network": options.network,
                "method": options.method,
                "sparsity": sparsity,
                "seed": seed,
                "samples": options.samples,
                "stages": options.stages,
                "refits": options.refits,
                "trainings": options.trainings,
                "max_gradients": options.max_gradients,
                "curvature": options.curvature,
            }
            if any(key.items() <= run.items() for run in read_runs(path)):
                continue
            line = run_once(model, images, key, protocol.settings.get("include"))
            append(path, line)
            shown = f"{line['accuracy']:.2f} in {line['seconds']:.0f} s"
            print(f"{options.network} {sparsity} seed {seed}: {shown}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=sorted(SPARSITIES))
    parser.add_argument("--samples", type=int, help="training samples in all, those held out among them")
    parser.add_argument("--sparsities", type=float, nargs="*")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--stages", type=int, default=15)
    parser.add_argument("--refits", type=int, default=15)
    parser.add_argument("--trainings", type=int, default=2)
    parser.add_argument("--max-gradients", type=int, default=120_000)
    parser.add_argument("--curvature", default="auto")
    parser.add_argument("--method", default="staged", help="any that takes a schedule")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def run_once(model: nn.Module, images: ImageData, key: Record, include: str | None) -> Record:
    """Prune once in stages and return the line of the record."""
    start = time.perf_counter()
    result = prune(
        model,
        images.train(),
        key["sparsity"],
        key["method"],
        schedule=Stages(key["stages"], refits=key["refits"], trainings=key["trainings"]),
        curvature=key["curvature"],
        max_gradients=key["max_gradients"],
        max_samples=key["samples"],
        include=include,
        seed=key["seed"],
        progress=False,
    )
    seconds = time.perf_counter() - start
    return {
        **key,
        "accuracy": accuracy(result.model, images),
        "pruned": result.pruned,
        "size": result.size,
        "sample_gradients": result.settings["sample_gradients"],
        "training_gradients": result.settings["training_gradients"],
        "loss_before": result.loss_before,
        "loss_after": result.loss_after,
        "seconds": round(seconds, 1),
        "parts": {name: round(value, 2) for name, value in result.seconds.items()},
        "notes": list(result.notes),
        "versions": versions(next(result.model.parameters()).device),
        "stages_trace": [event.values for event in result.trace if event.stage == "stages"],
    }


if __name__ == "__main__":
    main()
