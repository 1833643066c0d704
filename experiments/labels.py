"""Prune the paper's networks by the Fisher matrix at the data's labels, at sampled labels and at all labels.

    python -m experiments.labels mlpnet --checkpoints FOLDER [--rows 1000] [--seeds 0 1] [--data FOLDER]

Every finished run is a line of experiments/results/labels.jsonl and is not computed again.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.one_shot import FISHERS
from brainsurgeon.pruning.surgery import Surgery
from experiments.records import RESULTS, Record, append, is_done

RUNS = {"mlpnet": ((0.9, 0.95, 0.98), ("wf", "cbs-s", "cbs")), "resnet20": ((0.7, 0.8, 0.9), ("wf", "cbs"))}
RECORD = RESULTS / "labels.jsonl"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=sorted(RUNS))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--fishers", nargs="*", default=list(FISHERS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--checkpoints", type=Path, required=True)
    options = parser.parse_args(arguments)
    protocol = PROTOCOLS[options.network]
    images = load_images(protocol, options.data)
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    sparsities, methods = RUNS[options.network]
    for seed in options.seeds:
        for fisher in options.fishers:
            key = {"network": options.network, "fisher": fisher, "rows": options.rows, "seed": seed}
            cells: list[Record] = [
                {"sparsity": sparsity, "method": method} for sparsity in sparsities for method in methods
            ]
            missing = [cell for cell in cells if not is_done(RECORD, key | cell)]
            if not missing:
                continue
            settings = {**protocol.settings, "num_gradients": options.rows, "fisher": fisher, "seed": seed}
            surgery = Surgery(model, images.train(), progress=False, **settings)
            for cell in missing:
                start = time.perf_counter()
                result = surgery.prune(cell["sparsity"], cell["method"])
                line = {
                    **key,
                    **cell,
                    "accuracy": accuracy(result.model, images),
                    "pruned": result.pruned,
                    "loss_before": result.loss_before,
                    "loss_after": result.loss_after,
                    "predicted_change": result.predicted_change,
                    "seconds": round(time.perf_counter() - start, 1),
                    "gradient_seconds": round(result.seconds["gradients"], 1),
                    "settings": result.settings,
                    "notes": list(result.notes),
                    "versions": versions(surgery.device),
                }
                append(RECORD, line)
                print(*(key | cell).values(), f"{line['accuracy']:.2f} in {line['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
