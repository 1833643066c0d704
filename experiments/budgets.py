"""What is reached at the same samples and sample gradients: `auto` beside ordinary gradual magnitude pruning.

    python -m experiments.budgets mlpnet --checkpoints FOLDER [--samples 1000] [--gradients 240000] [--device cuda]

`magnitude` is gradual magnitude pruning with Adam as people do it: 15 cuts over the first 60% of the steps on a cubic
schedule, the smallest weights go for good, the rate falls along a cosine. Where samples are few it learns from the
dense outputs on mixed samples, as `auto` does. With "sgd" in its name, SGD with Nesterov's momentum takes the place of
Adam. `auto` finds its learning rate on held-out samples, and pays for it; the peers are given the one that is best for
them (--peer-rate, from whole runs judged on held-out training samples: 0.003 on MLPNet; --sgd-rate, on unseen images:
0.02 on ResNet20). Every finished run is a line of experiments/results/budgets-NETWORK-SAMPLES.jsonl and is not computed
again. With --alone, which says that the machine has no other work, a short run goes before, so that no method pays for
loading kernels, and the seconds are shown; these lines are in budgets-NETWORK-SAMPLES-alone.jsonl.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.loop import Plan
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.methods import Method
from brainsurgeon.pruning.prune import prune
from brainsurgeon.samples.augment import crop_and_flip
from experiments.records import RESULTS, Record, append, read_lines

ORDINARY = Plan(end=0.6, cuts=15, power=3.0, warm=0.0, score_power=0.0, returning=False, weight_decay=0.0)

SGD_DECAY = 5e-4
"""The weight decay of the peers that SGD trains, as it is usual for networks of images."""
WARM = 20_000
"""Sample gradients of the run that goes before."""


def methods(gradients: int, samples: int | None, augmented: bool, rate: float, sgd_rate: float) -> dict[str, Method]:
    """Return the methods that are compared, with what they may spend."""
    common: dict[str, Any] = {"max_gradients": gradients, "max_samples": samples}
    common |= {"augment": crop_and_flip} if augmented else {}
    few = samples is not None and samples < 5000
    lesson: dict[str, Any] = {"distil": 1.0, "temperature": 4.0} if few else {"distil": 0.0}
    ordinary = Gradual(
        "magnitude", plan=ORDINARY, learning_rate=rate, features=0.0, views=1, doubt=0.0, **lesson, **common
    )
    plain = replace(ordinary, plan=replace(ORDINARY, optimizer="sgd", weight_decay=SGD_DECAY), learning_rate=sgd_rate)
    return {
        "auto": Auto(**common),
        "magnitude": ordinary,
        "magnitude, distilled": replace(ordinary, distil=0.5, temperature=2.0),
        "magnitude, weights only": replace(ordinary, repair="weights"),
        "magnitude, sgd": plain,
        "magnitude, sgd, distilled": replace(plain, distil=0.5, temperature=2.0),
        "magnitude, sgd, weights only": replace(plain, repair="weights"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    protocol = PROTOCOLS[options.network]
    images = load_images(protocol, options.data)
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    kind = f"{options.samples or 'all'}{'-alone' if options.alone else ''}"
    path = options.results / f"budgets-{options.network}-{kind}.jsonl"
    settings = (options.samples, options.augment, options.peer_rate, options.sgd_rate)
    known = methods(options.gradients, *settings)
    if options.alone:
        warm = methods(WARM, *settings)
        for name in options.methods:
            run_once(model, images, warm[name], {"sparsity": 0.5, "seed": 0}, protocol.settings.get("include"))
    for seed in options.seeds:
        for sparsity in options.sparsities:
            for name in options.methods:
                key = {"network": options.network, "method": name, "sparsity": sparsity, "seed": seed}
                key |= {"samples": options.samples, "max_gradients": options.gradients, "augment": options.augment}
                if any(key.items() <= run.items() for run in read_lines(path)):
                    continue
                line = key | run_once(model, images, known[name], key, protocol.settings.get("include"))
                append(path, line)
                shown = f"{line['accuracy']:.2f} in {line['seconds']:.1f} s ({line['cpu_seconds']:.1f} s of CPU)"
                print(f"{options.network} {options.gradients} {sparsity} seed {seed} {name}: {shown}", flush=True)


def run_once(
    model: nn.Module, images: ImageData, method: Method, key: Record, include: str | None, budget: str = "global"
) -> Record:
    """Prune once and return what is recorded."""
    start, cpu = time.perf_counter(), time.process_time()
    common: dict[str, Any] = {"include": include, "budget": budget, "seed": key["seed"], "progress": False}
    result = prune(model, images.train(), key["sparsity"], method, **common)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {
        "accuracy": accuracy(result.model, images),
        "held_out_loss": result.loss_after,
        "pruned": result.pruned,
        "size": result.size,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "parts_seconds": result.seconds,
        "settings": result.settings,
        "notes": list(result.notes),
        "versions": versions(result.settings["device"]),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=sorted(PROTOCOLS))
    parser.add_argument("--samples", type=int, help="training samples in all, those held out among them")
    parser.add_argument("--gradients", type=int, default=240_000)
    parser.add_argument("--sparsities", type=float, nargs="*", default=[0.9, 0.95, 0.98])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="*", default=["auto", "magnitude"])
    parser.add_argument("--peer-rate", type=float, default=0.003, help="the peer's learning rate")
    parser.add_argument("--sgd-rate", type=float, default=0.02, help="that of the peers that SGD trains")
    parser.add_argument("--alone", action="store_true", help="nothing else runs: for the seconds")
    parser.add_argument("--augment", action="store_true", help="crops and flips, for images of objects")
    return with_places(parser)


def with_places(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add where a script works, reads and writes."""
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


if __name__ == "__main__":
    main()
