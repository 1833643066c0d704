"""Goals against a grid: the sparsity that one run finds, beside whole runs at each of several sparsities.

    python -m experiments.goals mlpnet --checkpoints FOLDER --gradients 120000 --grid 0.9 0.95 0.975 0.98 0.985 0.99
    python -m experiments.goals resnet20 --checkpoints FOLDER --method layerwise --drop 0.02 --grid 0.5 0.6

The last 2,000 training samples judge all networks and train none. A run of the grid has as many sample gradients as the
whole goal run; so has the sweep over the grid. Every finished run is a line of experiments/results/goals.jsonl and is
not computed again; test accuracy is recorded and chooses nothing.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brainsurgeon.files.versions import versions
from brainsurgeon.network.evaluate import evaluate
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.goal import Goal
from brainsurgeon.pruning.prune import prune
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.sweep import sweep
from experiments.records import RESULTS, Record, append, command_line, is_done

JUDGES = 2000
PATH = RESULTS / "goals.jsonl"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    protocol = PROTOCOLS[options.network]
    images, include = load_images(protocol, options.data), protocol.settings.get("include")
    model = load_network(protocol, [options.checkpoints])
    inputs, targets = images.train()
    data, judges = (inputs[:-JUDGES], targets[:-JUDGES]), (inputs[-JUDGES:], targets[-JUDGES:])
    common: dict[str, Any] = {"include": include, "progress": False, "method": options.method}
    trains = options.method in ("gradual", "staged", "auto")
    common |= {"max_gradients": options.gradients} if trains else {"max_samples": options.samples}
    goal = Goal(metric="accuracy", drop=options.drop, validation=judges)
    command = command_line("goals", sys.argv[1:])

    def record(kind: str, what: Record, run: Callable[[], list[PruningResult]]) -> None:
        key = {
            "network": options.network,
            "kind": kind,
            "method": options.method,
            "max_gradients": options.gradients * trains,
            **what,
        }
        if is_done(options.results, key):
            return
        start, cpu = time.perf_counter(), time.process_time()
        found = run()
        times = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
        networks = [measured(result, images, judges) for result in found]
        line = key | times | {"networks": networks, "dense": scores(model, images, judges), "command": command}
        append(options.results, line | {"versions": versions("cpu")})
        print(kind, what, f"{times['cpu_seconds']:.0f} s", [(n["sparsity"], n["judged"]) for n in networks], flush=True)

    def once(sparsity: float) -> list[PruningResult]:
        return [prune(model, data, sparsity, **common)]

    record("goal", {"drop": options.drop}, lambda: [prune(model, data, goal=goal, **common)])
    grid = list(options.grid)
    for sparsity in grid:
        record("grid", {"sparsity": sparsity}, partial(once, sparsity))
    record("sweep", {"grid": grid}, lambda: [*sweep(model, data, grid, validation=judges, **common).results])


def scores(model: nn.Module, images: ImageData, judges: Any) -> Record:
    """Return the accuracy on the judging samples and on the test samples."""
    return {"judged": evaluate(model, judges, "accuracy")["accuracy"], "test": accuracy(model, images)}


def measured(result: PruningResult, images: ImageData, judges: Any) -> Record:
    """Return what is recorded of one network."""
    return {
        "sparsity": result.sparsity,
        "pruned": result.pruned,
        "size": result.size,
        **scores(result.model, images, judges),
        "settings": result.settings,
        "notes": list(result.notes),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=sorted(PROTOCOLS))
    parser.add_argument("--method", default="gradual")
    parser.add_argument("--gradients", type=int, default=120_000, help="in all, of methods that train")
    parser.add_argument("--samples", type=int, default=200, help="to calibrate on, of other methods")
    parser.add_argument("--drop", type=float, default=0.01)
    parser.add_argument("--grid", type=float, nargs="*", default=[0.9, 0.95, 0.975, 0.98, 0.985, 0.99])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=PATH)
    return parser


if __name__ == "__main__":
    main()
