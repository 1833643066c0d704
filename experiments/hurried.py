"""Short of time: what `auto` gives within a limit beside `cbs` without one, on a small encoder that is trained here.

    python -m experiments.hurried --root DATA [--methods auto cbs] [--seconds 10 40] [--seeds 0 1]

The encoder reads an MNIST image as fourteen tokens, two rows each. It is trained with a fixed seed in about three
minutes of one core. A run that is in the records is not done again.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import brainsurgeon
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets import load
from experiments.records import RESULTS, append, command_line, is_done, read_lines, table

PATH = RESULTS / "hurried.jsonl"
SPARSITY, GIVEN, TRAINED = 0.8, 5000, 20_000
EPOCHS, BATCH, RATE = 4, 64, 1e-3
METHODS: dict[str, dict[str, Any]] = {
    "cbs": {"method": "cbs"},
    "auto": {"method": "auto"},
    "auto, quick": {"method": "auto", "effort": "quick"},
}
SECONDS = (10.0, 40.0)


class RowEncoder(nn.Module):
    """A small BERT on pairs of rows: four encoder layers of width 128, and a head on the mean token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Linear(56, 128), nn.Parameter(0.02 * torch.randn(14, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.layers(self.tokens(images.reshape(-1, 14, 56)) + self.places).mean(1))


def trained(inputs: Tensor, targets: Tensor) -> nn.Module:
    """Train the encoder from scratch; all draws are fixed."""
    torch.manual_seed(0)
    model, generator = RowEncoder(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    steps = EPOCHS * -(-len(targets) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(targets), generator=generator).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def measure(model: nn.Module, data: Any, test: Any, method: str, seconds: float | None, seed: int) -> dict[str, Any]:
    """Prune once; return the accuracy on the test images and the seconds."""
    settings = {**METHODS[method], **({} if seconds is None else {"max_seconds": seconds})}
    begun = time.monotonic()
    result = brainsurgeon.prune(model, data, SPARSITY, seed=seed, progress=False, **settings)
    return {
        "taken": round(time.monotonic() - begun, 2),
        "accuracy": accuracy(result.model, test),
        "chosen": result.settings.get("chosen"),
        "candidates": result.settings.get("candidates"),
        "notes": list(result.notes),
    }


def hurried_table() -> str:
    """Tabulate what was asked, taken and kept."""
    rows = []
    runs = read_lines(PATH)
    for method, asked in itertools.product(METHODS, (None, *SECONDS)):
        own = [run for run in runs if (run["method"], run["asked"]) == (method, asked)]
        if not own:
            continue
        right = [run["accuracy"] for run in own]
        spread = f" ± {stdev(right):.2f}" if len(right) > 1 else ""
        kept = ", ".join(dict.fromkeys(run["chosen"] or "–" for run in own))
        limit = "none" if asked is None else f"{asked:g} s"
        rows.append([f"`{method}`", limit, f"{mean(run['taken'] for run in own):.1f}"])
        rows[-1] += [f"{mean(right):.2f}{spread}", kept, str(len(own))]
    return table(["method", "limit", "seconds", "accuracy", "kept", "seeds"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="the folder that holds mnist")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seconds", nargs="+", type=float, default=list(SECONDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    images = load("mnist", options.root)
    inputs, targets = images.normalize(images.train_inputs[:TRAINED]), images.train_targets[:TRAINED]
    model = trained(inputs, targets)
    dense = accuracy(model, images)
    print(f"dense {dense:.2f}", flush=True)
    for method in options.methods:
        for asked in [None] if method == "cbs" else options.seconds:
            for seed in options.seeds:
                key = {"method": method, "asked": asked, "seed": seed}
                if is_done(PATH, key):
                    continue
                found = measure(model, (inputs[:GIVEN], targets[:GIVEN]), images, method, asked, seed)
                record = {**key, "dense": dense, **found, "load": round(os.getloadavg()[0], 1)}
                append(PATH, record | {"command": command_line("hurried", sys.argv[1:])})
                print({name: record[name] for name in (*key, "taken", "accuracy", "candidates")}, flush=True)


if __name__ == "__main__":
    main()
