"""Few steps: a network that is cut layer by layer and then trained, beside one that is cut while it is trained.

    python -m experiments.first_cuts mlpnet --checkpoints FOLDER [--samples 1000] [--gradients 3200 6400]

Accuracy on 4,000 training samples that the runs have not seen. Every finished run is a line of
experiments/results/first-cuts.jsonl.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import torch

from brainsurgeon.network.evaluate import evaluate
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.run import BATCH
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.prune import prune
from experiments.budgets import with_places
from experiments.records import RESULTS, Record, append, command_line, is_done, read_lines, table

JUDGED = 4000
METHODS = {"layerwise, trained": Layerwise(), "gradual": None}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    protocol = PROTOCOLS[options.network]
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    inputs, targets = load_images(protocol, options.data).train()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    others, own = order[:JUDGED], order[JUDGED:]
    data = inputs[own], targets[own]
    path = options.results / "first-cuts.jsonl"
    for sparsity in options.sparsities:
        for gradients in options.gradients:
            for name, cut in METHODS.items():
                key = {"network": options.network, "method": name, "sparsity": sparsity, "max_gradients": gradients}
                key |= {"samples": options.samples}
                if is_done(path, key):
                    continue
                method = Gradual("auto", first_cut=cut, max_gradients=gradients, max_samples=options.samples)
                start = time.process_time()
                result = prune(model, data, sparsity, method, seed=0, progress=False)
                seconds = time.process_time() - start
                line = key | {
                    "accuracy": evaluate(result.model, (inputs[others], targets[others]), "accuracy")["accuracy"]
                }
                line |= {"cpu_seconds": seconds, "learning_rate": result.settings["learning_rate"]}
                append(path, line | {"command": command_line("first_cuts", arguments or sys.argv[1:])})
                print(line, flush=True)


def first_cuts_table() -> str:
    """Tabulate accuracy by sparsity, steps and method."""
    runs = read_lines(RESULTS / "first-cuts.jsonl")
    rows = []
    for key in sorted({_key(run) for run in runs}):
        _, samples, sparsity, gradients = key
        found = {run["method"]: f"{run['accuracy']:.2f}" for run in runs if _key(run) == key}
        shown = [f"{samples:,}" if samples else "all", f"{sparsity:g}", f"{gradients // BATCH:,}"]
        rows.append([*shown, *(found.get(name, "–") for name in METHODS)])
    return table(["samples", "sparsity", "steps", "cut at once, then trained", "cut while trained"], rows)


def _key(run: Record) -> tuple[bool, int, float, int]:
    return run["samples"] is None, run["samples"] or 0, run["sparsity"], run["max_gradients"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=sorted(PROTOCOLS))
    parser.add_argument("--gradients", type=int, nargs="+", default=[3200, 6400, 12_800, 25_600])
    parser.add_argument("--samples", type=int, help="training samples in all; by default all but those it is judged on")
    parser.add_argument("--sparsities", type=float, nargs="+", default=[0.9, 0.95, 0.98])
    return with_places(parser)


if __name__ == "__main__":
    main()
