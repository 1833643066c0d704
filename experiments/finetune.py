"""Accuracy after a short fine-tune, by the mask it starts from: magnitude, CBS, and whatever else is named.

    python -m experiments.finetune mlpnet --checkpoints FOLDER
    python -m experiments.finetune resnet20 --checkpoints FOLDER --root DATA --device cuda

Every mask gets the same epochs, learning rate, order of samples and augmentation; the epoch is chosen on a tenth of
the training images that neither pruning nor training sees, test images are looked at before and after. A finished
cell is not computed again.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.files.versions import versions
from brainsurgeon.files.writing import plain
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, Protocol, load_images, load_network
from brainsurgeon.pruning.prune import prune
from brainsurgeon.samples.augment import random_crop, random_flip
from brainsurgeon.samples.epochs import split
from brainsurgeon.training.finetune import finetune
from brainsurgeon.training.settings import FinetuneSettings
from experiments.records import CHECKPOINTS, RESULTS, Record, append, read_runs, table


@dataclass(frozen=True)
class Plan:
    """How one network is fine-tuned."""

    sparsities: tuple[float, ...]
    settings: FinetuneSettings
    augmented: bool = False
    methods: tuple[str, ...] = field(default=("mp", "cbs", "staged"))


PLANS = {
    "mlpnet": Plan(
        (0.9, 0.95, 0.98, 0.99), FinetuneSettings(epochs=20, learning_rate=0.1, batch_size=128, patience=None)
    ),
    "resnet20": Plan(
        (0.8, 0.9, 0.95), FinetuneSettings(epochs=15, learning_rate=0.05, batch_size=256, patience=None), augmented=True
    ),
}


def crop_and_flip(batch: tuple[Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Augment as the network was trained."""
    return random_flip(random_crop(batch[0], 4, generator), generator), batch[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill in the missing cells and show the table."""
    given = _parser().parse_args(arguments)
    plan, protocol = PLANS[given.network], PROTOCOLS[given.network]
    file = given.output / f"finetune-{given.network}.jsonl"
    finished = {key_of(cell) for cell in read_runs(file)}
    data = load_images(protocol, given.root)
    model = load_network(protocol, [*given.checkpoints, CHECKPOINTS]).to(given.device)
    samples = tuple(part.to(given.device) for part in data.train())
    for seed in range(given.seeds):
        # What chooses the epoch must be new to the pruning too.
        drawn = torch.randperm(len(samples[1]), generator=torch.Generator().manual_seed(seed))[: given.samples]
        chosen = samples if given.samples is None else tuple(part[drawn] for part in samples)
        parts = split(chosen, plan.settings.held_out_share, torch.Generator().manual_seed(seed))
        changes: dict[str, Any] = {"seed": seed, **({"epochs": given.epochs} if given.epochs else {})}
        seeded = replace(plan, settings=replace(plan.settings, **changes))
        for sparsity in given.sparsities or plan.sparsities:
            for method in given.methods or plan.methods:
                cell = {"network": given.network, "method": method, "sparsity": sparsity, "seed": seed}
                if key_of(cell) in finished:
                    continue
                cell |= tuned(model, parts, data, seeded, cell, settings_of(method, protocol))
                append(file, plain(cell))
                shown = ("method", "sparsity", "before", "after", "seconds")
                print(json.dumps({name: cell[name] for name in shown}), flush=True)
    print(before_and_after(read_runs(file)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=PLANS)
    parser.add_argument("--checkpoints", type=Path, action="append", default=[])
    parser.add_argument("--root", type=Path, help="the folder that holds mnist or cifar10")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", nargs="+", help="names that brainsurgeon.prune knows")
    parser.add_argument("--sparsities", nargs="+", type=float)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--samples", type=int, help="use only so many training images")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser


def tuned(
    model: nn.Module, parts: tuple[Any, Any], data: ImageData, plan: Plan, cell: Record, settings: dict[str, Any]
) -> Record:
    """Prune and fine-tune once; return what is recorded of it."""
    train, held_out = parts
    started = time.perf_counter()
    result = prune(model, train, cell["sparsity"], cell["method"], seed=cell["seed"], progress=False, **settings)
    seconds = time.perf_counter() - started
    found = finetune(
        result.model,
        train,
        settings=plan.settings,
        masks=result.masks,
        held_out=held_out,
        progress=False,
        augment=crop_and_flip if plan.augmented else None,
    )
    assert found.pruned == result.pruned
    return {
        "pruned": found.pruned,
        "size": result.size,
        "dense": accuracy(model, data),
        "before": accuracy(result.model, data),
        "after": accuracy(found.model, data),
        "best_epoch": found.best_epoch,
        "epochs": list(found.epochs),
        "seconds": {"prune": round(seconds, 1), "fine-tune": round(found.seconds, 1)},
        "samples": len(train[1]),
        "settings": found.settings,
        "versions": versions(train[1].device),
    }


def settings_of(method: str, protocol: Protocol) -> dict[str, Any]:
    """Return the settings of the paper's tables; methods that train choose their own but for what may be pruned."""
    own, trains = ("include", "exclude"), method in ("staged", "gradual", "auto")
    return {key: value for key, value in protocol.settings.items() if not trains or key in own}


def key_of(cell: Record) -> tuple[Any, ...]:
    """Tell cells apart."""
    return cell["method"], cell["sparsity"], cell["seed"]


def before_and_after(cells: list[Record], titles: dict[str, str] | None = None) -> str:
    """Return before → after by method and sparsity, the mean over seeds."""
    methods, rows = list(dict.fromkeys(cell["method"] for cell in cells)), []
    for sparsity in sorted({cell["sparsity"] for cell in cells}):
        row = [f"{sparsity:g}"]
        for method in methods:
            found = [c for c in cells if (c["sparsity"], c["method"]) == (sparsity, method)]
            means = [sum(c[part] for c in found) / len(found) for part in ("before", "after")] if found else []
            row.append(" → ".join(f"{mean:.2f}" for mean in means) or "–")
        rows.append(row)
    return table(["sparsity", *((titles or {}).get(method, method) for method in methods)], rows)


if __name__ == "__main__":
    main()
