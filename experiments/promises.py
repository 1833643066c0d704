"""Hold the promises on time: how long a run takes with a limit, and how long it is silent.

    python -m experiments.promises [--networks mlp …] [--methods auto …] [--seconds 5 15 40]

Networks are untrained and samples random: what is measured is time. A run that is in the records is not done again.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.events import Event
from experiments.records import RESULTS, append, is_done, read_lines, table

PATH = RESULTS / "promises.jsonl"
SECONDS = (5.0, 15.0, 40.0)
METHODS: dict[str, dict[str, Any]] = {
    "auto": {"method": "auto"},
    "auto, quick": {"method": "auto", "effort": "quick"},
    "staged": {"method": "staged"},
    "gradual": {"method": "gradual"},
}
UNLIMITED = {"layerwise": {"method": "layerwise"}, "cbs": {"method": "cbs"}}
"""Without a setting for seconds: how long they take, and how long they are silent."""
SAMPLES = 2500


class Encoder(nn.Module):
    """A small BERT: embeddings, four encoder layers of width 128, and a head on the first token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(2000, 128), nn.Parameter(0.02 * torch.randn(64, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(128, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.layers(self.tokens(tokens) + self.places)[:, 0])


class Recurrent(nn.Module):
    """A small LSTM of two layers, and a head on its last output."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.inner, self.head = nn.LSTM(32, width, 2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.inner(x)[0][:, -1])


def mlp(width: int) -> nn.Module:
    """Return a perceptron with two hidden layers."""
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def resnet20() -> nn.Module:
    """Return the paper's ResNet20."""
    from brainsurgeon.paper.models import build

    return build("resnet20")


NETWORKS: dict[str, tuple[str, Callable[[], nn.Module], Callable[[int], Tensor], int]] = {
    "mlp": ("784→512→512→10", lambda: mlp(512), lambda n: torch.randn(n, 784), 10),
    "wide": ("784→1600→1600→10", lambda: mlp(1600), lambda n: torch.randn(n, 784), 10),
    "encoder": ("encoder of 4 layers, 64 tokens", Encoder, lambda n: torch.randint(2000, (n, 64)), 4),
    "resnet20": ("ResNet20", resnet20, lambda n: torch.randn(n, 3, 32, 32), 10),
    "lstm": ("LSTM of 2 layers, 28 steps", Recurrent, lambda n: torch.randn(n, 28, 32), 10),
}


def measure(network: str, method: str, seconds: float | None) -> dict[str, Any]:
    """Prune once, and return the seconds that it took and the longest silence."""
    _, build, inputs, classes = NETWORKS[network]
    torch.manual_seed(0)
    model, data = build(), (inputs(SAMPLES), torch.randint(classes, (SAMPLES,)))
    settings = {**(METHODS | UNLIMITED)[method], **({} if seconds is None else {"max_seconds": seconds})}
    last, longest, during = time.monotonic(), 0.0, ""

    def notice(event: Event) -> None:
        nonlocal last, longest, during
        now = time.monotonic()
        if now - last > longest:
            longest, during = now - last, f"before {event.stage} {event.values.get('step', '')}".strip()
        last = now

    start = last
    result = brainsurgeon.prune(model, data, 0.8, progress=False, callback=notice, **settings)
    end = time.monotonic()
    if end - last > longest:
        longest, during = end - last, "at the end"
    return {
        "taken": round(end - start, 2),
        "silence": round(longest, 2),
        "during": during,
        "pruned": result.pruned,
        "chosen": result.settings.get("chosen"),
        "notes": [note for note in result.notes if "time" in note],
    }


def allowed(seconds: float) -> float:
    """Return what a limit may come to: one second more, or a tenth."""
    return seconds + max(1.0, 0.1 * seconds)


def promises_table() -> str:
    """Tabulate what was asked and taken."""
    rows = []
    runs = read_lines(PATH)
    for key, (title, *_) in NETWORKS.items():
        for method in (*METHODS, *UNLIMITED):
            own = {run["asked"]: run for run in runs if (run["network"], run["method"]) == (key, method)}
            if own:
                taken = [f"{own[s]['taken']:.1f}" if s in own else "–" for s in (*SECONDS, None)]
                rows.append([title, method, *taken, f"{max(run['silence'] for run in own.values()):.1f}"])
    return table(["network", "method", *(f"{s:g} s asked" for s in SECONDS), "no limit", "longest silence"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=[*METHODS, *UNLIMITED])
    parser.add_argument("--seconds", nargs="+", type=float, default=list(SECONDS))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for network in options.networks:
        for method in options.methods:
            for seconds in options.seconds if method in METHODS else [None]:
                key = {"network": network, "method": method, "asked": seconds}
                if is_done(PATH, key):
                    continue
                record = {**key, **measure(network, method, seconds), "load": round(os.getloadavg()[0], 1)}
                append(PATH, record)
                print(record, flush=True)


if __name__ == "__main__":
    main()
