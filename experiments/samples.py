"""What it is worth to draw doubted samples more often, and to warp few pictures: MLPNet on other training images.

    python -m experiments.samples --checkpoints FOLDER

Pruned with training images of MNIST, judged on 10,000 others. `doubt` is asked with 50,000 images, with their own
labels and with one label in ten drawn at random; `warp` with 1,000. Every finished run is a line of
experiments/results/samples.jsonl.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.prune import prune
from experiments.budgets import with_places
from experiments.records import RESULTS, Record, append, command_line, is_done, read_lines, table

JUDGED, CLASSES = 10_000, 10
SHARES = (0.0, 0.25, 0.5, 0.75)
SPARSITIES = (0.9, 0.95, 0.98)
Pairs = tuple[Tensor, Tensor]
ASKED: tuple[tuple[int | None, int, float], ...] = ((None, 60_000, 0.0), (None, 240_000, 0.0), (None, 240_000, 0.1))
"""Samples, sample gradients and the share of random labels that `doubt` is asked with."""
FEW = (1000, 120_000, 0.0)
"""The same of `warp`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    protocol = PROTOCOLS["mlpnet"]
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    (inputs, targets), others = apart(load_images(protocol, options.data).train())
    path = options.results / "samples.jsonl"
    for (samples, gradients, wrong), given in _settings():
        labels = _mislabelled(targets, wrong)
        for sparsity in SPARSITIES:
            for seed in options.seeds:
                key = {"samples": samples, "max_gradients": gradients, "wrong": wrong, "given": given}
                key |= {"sparsity": sparsity, "seed": seed}
                if is_done(path, key):
                    continue
                method = Gradual("auto", max_gradients=gradients, max_samples=samples, **given)
                start = time.process_time()
                result = prune(model, (inputs, labels), sparsity, method, seed=seed, progress=False)
                line = key | {"cpu_seconds": time.process_time() - start}
                line |= {"accuracy": accuracy(result.model, others)}
                line |= {"held_out_loss": result.loss_after, "learning_rate": result.settings["learning_rate"]}
                append(path, line | {"command": command_line("samples", arguments or sys.argv[1:])})
                print(line, flush=True)


def samples_table() -> str:
    """Tabulate the mean accuracy of the seeds by what was given and by sparsity; write_tables writes it."""
    runs = read_lines(RESULTS / "samples.jsonl")
    rows = []
    for kind, given in _settings():
        own = [run for run in runs if _kind(run) == kind and run["given"] == given]
        found = [[run["accuracy"] for run in own if run["sparsity"] == sparsity] for sparsity in SPARSITIES]
        samples, gradients, wrong = kind
        shown = [f"{samples:,}" if samples else "50,000", f"{gradients:,}", f"{wrong:.0%}"]
        cells = [f"{mean(each):.2f} ({len(each)})" if each else "–" for each in found]
        rows.append([*shown, ", ".join(f"{name}={value:g}" for name, value in given.items()), *cells])
    heads = ["samples", "sample gradients", "random labels", "settings"]
    return table([*heads, *(f"{sparsity:g}" for sparsity in SPARSITIES)], rows)


def _settings() -> Iterator[tuple[tuple[int | None, int, float], dict[str, Any]]]:
    for kind in ASKED:
        for share in SHARES:
            yield kind, {"doubt": share}
    for wanted in (False, True):
        yield FEW, {"warp": wanted}


def _kind(run: Record) -> tuple[int | None, int, float]:
    return run["samples"], run["max_gradients"], run["wrong"]


def apart(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Return the training images that prune, and 10,000 others that judge."""
    order = torch.randperm(len(pairs[0]), generator=torch.Generator().manual_seed(5))
    own, others = order[:-JUDGED], order[-JUDGED:]
    return (pairs[0][own], pairs[1][own]), (pairs[0][others], pairs[1][others])


def _mislabelled(targets: Tensor, share: float) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    chosen = torch.rand(len(targets), generator=generator) < share
    return torch.where(chosen, torch.randint(CLASSES, targets.shape, generator=generator), targets)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return with_places(parser)


if __name__ == "__main__":
    main()
