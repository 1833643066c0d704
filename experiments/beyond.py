"""Prune the paper's networks in stages (method "auto") and record what is reached, with what it cost.

Usage: python experiments/beyond.py resnet20 --samples 1000 --checkpoints FOLDER [--device cuda] [--data FOLDER]

Every finished run is a line of experiments/results/beyond-NETWORK-SAMPLES.jsonl and is not computed again.
"""

import argparse
import json
import time
from pathlib import Path

from brainsurgeon.network.recalibrate import recalibrate_norms

from brainsurgeon.files.versions import versions
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.prune import prune
from brainsurgeon.pruning.staged.schedule import Stages

SPARSITIES = {
    "mlpnet": (0.5, 0.7, 0.8, 0.9, 0.95, 0.98),
    "resnet20": (0.5, 0.7, 0.8, 0.9),
    "mobilenet-0.75": (0.5, 0.6, 0.7, 0.8),
}


def main() -> None:
    """Compute the runs that are still missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("network", choices=sorted(SPARSITIES))
    parser.add_argument("--samples", type=int, help="training samples in all, those held out among them")
    parser.add_argument("--sparsities", type=float, nargs="*")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--stages", type=int, default=15)
    parser.add_argument("--refits", type=int, default=15)
    parser.add_argument("--walks", type=int, default=2)
    parser.add_argument("--max-gradients", type=int, default=120_000)
    parser.add_argument("--curvature", default="auto")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    protocol = PROTOCOLS[options.network]
    images = load_images(protocol, options.data)
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    path = options.results / f"beyond-{options.network}-{options.samples or 'all'}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
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
                "walks": options.walks,
                "max_gradients": options.max_gradients,
                "curvature": options.curvature,
            }
            if _is_done(path, key):
                continue
            start = time.perf_counter()
            result = prune(
                model,
                images.train(),
                sparsity,
                options.method,
                schedule=Stages(options.stages, refits=options.refits, walks=options.walks),
                curvature=options.curvature,
                max_gradients=options.max_gradients,
                max_samples=options.samples,
                include=protocol.settings.get("include"),
                seed=seed,
                progress=False,
            )
            seconds = time.perf_counter() - start
            line = {
                **key,
                "accuracy": accuracy(result.model, images),
                "pruned": result.pruned,
                "size": result.size,
                "sample_gradients": result.settings["sample_gradients"],
                "loss_before": result.loss_before,
                "loss_after": result.loss_after,
                "seconds": round(seconds, 1),
                "parts": {name: round(value, 2) for name, value in result.seconds.items()},
                "notes": list(result.notes),
                "versions": versions(next(result.model.parameters()).device),
                "stages_trace": [event.values for event in result.trace if event.stage == "stages"],
            }
            some = [tensor[:1000].to(options.device) for tensor in (images.train_inputs, images.train_targets)]
            loss = BatchLoss(result.model, "cross_entropy")
            if recalibrate_norms(loss, [(images.normalize(some[0]), some[1])], options.device):
                line["accuracy_recalibrated"] = accuracy(result.model, images)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{options.network} {sparsity} seed {seed}: {line['accuracy']:.2f} in {seconds:.0f} s", flush=True)


def _is_done(path: Path, key: dict[str, object]) -> bool:
    lines = path.read_text().splitlines() if path.is_file() else []
    return any(key.items() <= json.loads(line).items() for line in lines)


if __name__ == "__main__":
    main()
