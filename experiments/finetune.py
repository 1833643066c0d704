"""Accuracy after a short fine-tune, by the mask it starts from: magnitude, CBS, and whatever else is named.

    python experiments/finetune.py mlpnet --checkpoints FOLDER
    python experiments/finetune.py resnet20 --checkpoints FOLDER --root DATA --device cuda

Every mask gets the same epochs, learning rate, order of samples and augmentation; the epoch is chosen on a tenth of
the training images that neither pruning nor training sees, test images are looked at before and after. A finished
cell is not computed again.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.files.versions import versions
from brainsurgeon.files.writing import plain
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, Protocol, load_images, load_network
from brainsurgeon.pruning.prune import prune
from brainsurgeon.samples.augment import random_crop, random_flip
from brainsurgeon.samples.epochs import split
from brainsurgeon.training.finetune import finetune
from brainsurgeon.training.settings import FinetuneSettings


@dataclass(frozen=True)
class Plan:
    """How one network is fine-tuned."""

    sparsities: tuple[float, ...]
    settings: FinetuneSettings
    augmented: bool = False
    methods: tuple[str, ...] = field(default=("mp", "cbs", "auto"))


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


def main() -> None:
    """Fill in the missing cells and show the table."""
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
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    plan, protocol = PLANS[given.network], PROTOCOLS[given.network]
    given.output.mkdir(parents=True, exist_ok=True)
    file = given.output / f"finetune-{given.network}.jsonl"
    finished = {key_of(cell) for cell in read(file)}
    data = load_images(protocol, given.root)
    model = load_network(protocol, [*given.checkpoints, Path("experiments/checkpoints")]).to(given.device)
    samples = tuple(part.to(given.device) for part in data.train())
    for seed in range(given.seeds):
        # What chooses the epoch must be new to the pruning too.
        drawn = torch.randperm(len(samples[1]), generator=torch.Generator().manual_seed(seed))[: given.samples]
        chosen = samples if given.samples is None else tuple(part[drawn] for part in samples)
        train, held_out = split(chosen, plan.settings.held_out_share, torch.Generator().manual_seed(seed))
        changes: dict[str, Any] = {"seed": seed, **({"epochs": given.epochs} if given.epochs else {})}
        settings = FinetuneSettings(**{**asdict(plan.settings), **changes})
        for sparsity in given.sparsities or plan.sparsities:
            for method in given.methods or plan.methods:
                cell = {"network": given.network, "method": method, "sparsity": sparsity, "seed": seed}
                if key_of(cell) in finished:
                    continue
                started = time.perf_counter()
                result = prune(
                    model, train, sparsity, method, seed=seed, progress=False, **settings_of(method, protocol)
                )
                seconds = time.perf_counter() - started
                tuned = finetune(
                    result.model,
                    train,
                    settings=settings,
                    masks=result.masks,
                    held_out=held_out,
                    progress=False,
                    augment=crop_and_flip if plan.augmented else None,
                )
                cell |= {
                    "pruned": tuned.pruned,
                    "size": result.size,
                    "dense": accuracy(model, data),
                    "before": accuracy(result.model, data),
                    "after": accuracy(tuned.model, data),
                    "best_epoch": tuned.best_epoch,
                    "epochs": list(tuned.epochs),
                    "seconds": {"prune": round(seconds, 1), "fine-tune": round(tuned.seconds, 1)},
                    "samples": len(train[1]),
                    "settings": tuned.settings,
                    "versions": versions(given.device),
                }
                assert tuned.pruned == result.pruned
                with file.open("a") as lines:
                    lines.write(json.dumps(plain(cell)) + "\n")
                print(
                    json.dumps({k: cell[k] for k in ("method", "sparsity", "before", "after", "seconds")}), flush=True
                )
    print(table(read(file)))


def settings_of(method: str, protocol: Protocol) -> dict[str, Any]:
    """Return the settings of the paper's tables; "auto" chooses its own, and is told only what may be pruned."""
    own = ("include", "exclude")
    return {key: value for key, value in protocol.settings.items() if method != "auto" or key in own}


def key_of(cell: dict[str, Any]) -> tuple[Any, ...]:
    """Tell cells apart."""
    return cell["method"], cell["sparsity"], cell["seed"]


def read(file: Path) -> list[dict[str, Any]]:
    """Return the finished cells."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(cells: list[dict[str, Any]]) -> str:
    """Return before → after by method and sparsity, the mean over seeds."""
    methods = list(dict.fromkeys(cell["method"] for cell in cells))
    lines = ["| sparsity | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for sparsity in sorted({cell["sparsity"] for cell in cells}):
        row = [f"{sparsity:g}"]
        for method in methods:
            found = [c for c in cells if c["sparsity"] == sparsity and c["method"] == method]
            means = [sum(c[part] for c in found) / len(found) for part in ("before", "after")] if found else []
            row.append(" → ".join(f"{mean:.2f}" for mean in means) or "–")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
