"""Networks with half the multiply-adds: accuracy at once and after a short fine-tune, and the time that was measured.

    python -m experiments.structured resnet20 --checkpoints FOLDER --root DATA
    python -m experiments.structured mobilenet-0.75 --checkpoints FOLDER
    python -m experiments.structured resnet20 --checkpoints FOLDER --root DATA --latency 20

`norm` is the simple peer: as many units of every group go, those whose weights have the smallest L2 norm, and nothing
is fitted anew. Both are fine-tuned alike, to the outputs of the dense network. A finished line is not computed again.
`--latency` times networks of the recorded shapes for so many seconds each, in seconds of the one thread that runs.
"""

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles

import torch
from torch import Tensor, nn

from brainsurgeon.cost.latency import in_turn
from brainsurgeon.files.versions import versions
from brainsurgeon.files.writing import plain
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.structured.prepare import prepare
from brainsurgeon.structured.remove import Cuts, cuts_of, remove
from brainsurgeon.structured.result import ShrinkResult
from brainsurgeon.structured.shrink import shrink
from brainsurgeon.structured.trial import numbers_after, stored_shapes
from brainsurgeon.structured.tune import DEFAULT, tune
from brainsurgeon.training.settings import FinetuneSettings
from experiments.records import RESULTS, Record, append, command_line, is_done, read_lines, table

FILE = RESULTS / "structured.jsonl"
TITLES = {"resnet20": "ResNet20, CIFAR-10", "mobilenet-0.75": "MobileNetV1 0.75, ImageNet"}


@dataclass(frozen=True)
class Plan:
    """How one network is shrunk and fine-tuned."""

    samples: int
    fit_samples: int
    tuned_on: int
    settings: FinetuneSettings
    test_batch: int


PLANS = {
    "resnet20": Plan(
        512,
        256,
        5000,
        FinetuneSettings(epochs=3, learning_rate=0.02, batch_size=64, patience=None),
        test_batch=500,
    ),
    "mobilenet-0.75": Plan(
        256,
        512,
        1000,
        replace(DEFAULT, epochs=3, patience=None),
        test_batch=50,
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the lines that are still missing, and show the table."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    plan, protocol = PLANS[options.network], PROTOCOLS[options.network]
    images = load_images(protocol, options.root)
    model = load_network(protocol, [options.checkpoints])
    key = {"network": options.network, "macs": options.macs, "seed": options.seed}
    if options.latency:
        append(
            FILE,
            key
            | {"method": "latency", "command": command_line("structured", sys.argv[1:])}
            | timed(model, images, key, options.latency),
        )
        print(structured_table())
        return
    missing = [m for m in options.methods if not is_done(FILE, key | {"method": m})]
    if missing:
        shrunk, seconds = _shrunk(model, images, plan, options)
        data, dense = lesson(images, plan), accuracy(model, images, batch_size=plan.test_batch)
        for method in missing:
            small, cuts = (shrunk.model, shrunk.cuts) if method == "shrink" else by_norm(model, images, shrunk)
            line = key | {"method": method, "seconds": seconds, "dense": dense}
            line |= _line(model, small, cuts, shrunk, images, data, plan)
            append(FILE, plain(line | {"command": command_line("structured", sys.argv[1:])}))
            print({name: line[name] for name in ("method", "dense", "before", "after")}, flush=True)
    print(structured_table())


def timed(model: nn.Module, images: ImageData, key: Record, seconds: float) -> Record:
    """Time the dense network and one of the recorded shape, whose weights do not matter, in turn."""
    run = next(line for line in read_lines(FILE) if key.items() <= line.items() and "kept" in line)
    some = images.normalize(images.train_inputs[:32]), images.train_targets[:32]
    prepared = prepare(Surgery(model, some, progress=False), 32, 1)
    kept = [run["kept"][group.name][0] for group in prepared.groups]
    removed = [torch.arange(group.units) >= count for group, count in zip(prepared.groups, kept, strict=True)]
    numbers = numbers_after(prepared.groups, prepared.numbers, kept)
    small = remove(copy.deepcopy(model), cuts_of(prepared.groups, removed, stored_shapes(model), numbers))
    times = thread_times((model, small), some[0][:1], seconds)
    return {"milliseconds": times, "clock": "thread", "threads": 1, "versions": versions("cpu")}


@torch.inference_mode()
def thread_times(models: Sequence[nn.Module], example: Tensor, seconds: float) -> list[float]:
    """Return the fastest tenth of many runs in turn, in milliseconds of the thread.

    A clock on the wall would count what else goes on: a run that outlasts a time slice waits for the next one.
    """
    torch.set_num_threads(1)
    found: list[list[float]] = [[] for _ in models]
    while len(found[0]) < 50 or sum(map(sum, found)) < seconds * len(models):
        for model, own in zip(models, found, strict=True):
            model(example)  # finds the caches as it would leave them
            for _ in range(5):
                start = time.thread_time()
                model(example)
                own.append(time.thread_time() - start)
    return [1000 * quantiles(own, n=10)[0] for own in found]


def _shrunk(model: nn.Module, images: ImageData, plan: Plan, options: argparse.Namespace) -> tuple[ShrinkResult, float]:
    started = time.perf_counter()
    result = shrink(
        model,
        images.train(),
        macs=options.macs,
        seed=options.seed,
        max_samples=plan.samples,
        fit_samples=plan.fit_samples,
        seconds=0,
        progress=False,
    )
    print(result.summary(), flush=True)
    return result, time.perf_counter() - started


def by_norm(model: nn.Module, images: ImageData, like: ShrinkResult) -> tuple[nn.Module, Cuts]:
    """Return the network without as many units of every group, those of the smallest norm."""
    prepared = prepare(Surgery(model, images.train(), progress=False), 32, 1)
    removed = []
    for group, record in zip(prepared.groups, like.groups, strict=True):
        norms = torch.zeros(group.units, dtype=torch.float64)
        for writer in group.writers:
            rows = model.get_parameter(writer).detach().double().square().flatten(1).sum(1)
            norms += rows[group.places[writer, 0]].sum(1)
        gone = torch.zeros(group.units, dtype=torch.bool)
        gone[norms.argsort()[: group.units - len(record.kept)]] = True
        removed.append(gone)
    numbers = numbers_after(prepared.groups, prepared.numbers, [int((~gone).sum()) for gone in removed])
    cuts = cuts_of(prepared.groups, removed, stored_shapes(model), numbers)
    return remove(copy.deepcopy(model), cuts), cuts


def lesson(images: ImageData, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return the training images of the fine-tune, which learns from what the dense network makes of them."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(images.train_targets), generator=generator)[: plan.tuned_on]
    return images.normalize(images.train_inputs[drawn]), images.train_targets[drawn]


def _line(
    model: nn.Module,
    small: nn.Module,
    cuts: Cuts,
    shrunk: ShrinkResult,
    images: ImageData,
    data: tuple[Tensor, Tensor],
    plan: Plan,
) -> Record:
    """Fine-tune a smaller network and return what is recorded."""
    tuned = tune(small, model, cuts, data, settings=plan.settings, progress=False)
    example = (data[0][:1],)
    scores = [accuracy(one, images, batch_size=plan.test_batch) for one in (small, tuned.model)]
    return {
        "before": scores[0],
        "after": scores[1],
        "multiply_adds": shrunk.multiply_adds,
        "parameters": shrunk.parameters,
        "milliseconds": in_turn((model, tuned.model), example, 2.0),
        "kept": {group.name: [len(group.kept), group.units] for group in shrunk.groups},
        "finetune": {
            **tuned.settings,
            "samples": plan.tuned_on,
            "seconds": tuned.seconds,
            "best_epoch": tuned.best_epoch,
        },
        "settings": shrunk.settings,
        "threads": torch.get_num_threads(),
        "versions": versions("cpu"),
    }


def structured_table() -> str:
    """Tabulate the recorded runs."""
    rows = []
    lines = read_lines(FILE)
    latest: dict[str, list[float]] = {
        line["network"]: line["milliseconds"] for line in lines if line["method"] == "latency"
    }
    for run in (line for line in lines if line["method"] != "latency"):
        macs, times = run["multiply_adds"], latest.get(run["network"]) or run["milliseconds"]
        rows.append(
            [
                TITLES[run["network"]],
                f"`{run['method']}`" if run["method"] == "shrink" else "smallest L2 norm",
                f"{macs[0] / 1e6:.1f} → {macs[1] / 1e6:.1f} M",
                f"{run['dense']:.2f}",
                f"{run['before']:.2f}",
                f"{run['after']:.2f}",
                f"{times[0]:.1f} → {times[1]:.1f} ms ({times[0] / times[1]:.2f} ×)",
            ]
        )
    head = ["network", "units chosen by", "multiply-adds", "dense", "at once", "fine-tuned", "latency"]
    return table(head, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=PLANS)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--root", type=Path, help="the folder that holds cifar10")
    parser.add_argument("--methods", nargs="+", default=["shrink", "norm"])
    parser.add_argument("--macs", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, metavar="SECONDS", help="only time networks of the recorded shapes")
    parser.add_argument("--threads", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
