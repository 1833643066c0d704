"""Measure the memory that methods take at their peak, beside what is foretold.

    python -m experiments.memory [--networks mlp …] [--methods cbs …] [--device cuda]

Each run is a process of its own: the peak of its resident memory above what it held with the model and the data loaded,
and torch warm; on a GPU, of what torch has reserved there. Networks are untrained and samples random. A run that is in
the records is not done again.
"""

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.promises import NETWORKS as TIMED
from experiments.promises import Recurrent
from experiments.records import RESULTS, append, is_done, read_lines, table

PATHS = {"cpu": RESULTS / "memory.jsonl", "cuda": RESULTS / "memory-cuda.jsonl"}
MIB = 1 << 20
SAMPLES = 2500


class DeepEncoder(nn.Module):
    """An encoder of eleven million weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, 384)
        layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(384, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.layers(self.tokens(tokens))[:, 0])


NETWORKS: dict[str, tuple[str, Callable[[], nn.Module], Callable[[int], Tensor], int]] = {
    **TIMED,
    "lstm": ("LSTM of 2 layers of width 320, 28 steps", lambda: Recurrent(320), TIMED["lstm"][2], 10),
    "deep": ("encoder of 6 layers of width 384, 32 tokens", DeepEncoder, lambda n: torch.randint(1000, (n, 32)), 4),
}
SHORT = {"max_gradients": 1000}
METHODS: dict[str, dict[str, Any]] = {
    "mp": {"method": "mp"},
    "cbs": {"method": "cbs", "num_gradients": 200},
    "wf": {"method": "wf", "num_gradients": 100},
    "staged": {"method": "staged", "schedule": 1, **SHORT},
    "layerwise": {"method": "layerwise", "max_samples": 200},
    "gradual": {"method": "gradual", **SHORT},
    "auto": {"method": "auto", **SHORT},
    "auto, quick": {"method": "auto", "effort": "quick"},
}
LEFT_OUT = {
    ("lstm", "auto, quick"),
    ("lstm", "staged"),
    ("deep", "cbs"),
    ("deep", "staged"),
    ("deep", "auto, quick"),
    ("wide", "staged"),
}
"""Minutes each on one core."""


def status(field: str) -> int:
    """Return a field of this process's memory in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def made(network: str) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return a network and its samples, the same ones each time."""
    _, build, inputs, classes = NETWORKS[network]
    torch.manual_seed(0)
    return build(), (inputs(SAMPLES), torch.randint(classes, (SAMPLES,)))


def foretold(network: str, method: str, device: str) -> dict[str, Any]:
    """Return what is foretold, part by part."""
    from brainsurgeon.pruning.fitting import needs_of
    from brainsurgeon.pruning.methods import make_method
    from brainsurgeon.pruning.surgery import Surgery

    settings = dict(METHODS[method])
    surgery = Surgery(*made(network), progress=False, device=device)
    parts = needs_of(make_method(settings.pop("method"), settings), surgery)
    return {"foretold": sum(parts.values()), "parts": parts}


def measure(network: str, method: str, device: str) -> dict[str, Any]:
    """Prune once in this process, and return the peak above what was there, and what was foretold."""
    import brainsurgeon
    from brainsurgeon.events.loading import load

    torch.set_num_threads(1)
    load()
    known = foretold(network, method, device)
    model, data = made(network)
    settings = {"progress": False, "device": device, **METHODS[method]}
    peak = peak_of(device, lambda: brainsurgeon.prune(model, data, 0.8, **settings))
    return {"peak": peak, **known, "settings": METHODS[method]}


def peak_of(device: str, work: Callable[[], object]) -> int:
    """Return the peak of the device's memory while something is done, above what was there."""
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()  # what a record of kernels holds is not free for others
        work()
        return torch.cuda.max_memory_reserved() - before
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = status("VmRSS")
    work()
    return status("VmHWM") - before


def memory_table(device: str = "cpu") -> str:
    """Tabulate peaks and what was foretold."""
    rows = []
    for run in sorted(read_lines(PATHS[device]), key=lambda run: (list(NETWORKS).index(run["network"]), run["peak"])):
        ratio = run["foretold"] / run["peak"]
        title = NETWORKS[run["network"]][0]
        rows.append([title, run["method"], *(f"{run[key] / MIB:,.0f}" for key in ("peak", "foretold")), f"{ratio:.2f}"])
    return table(["network", "method", "peak, MiB", "foretold, MiB", "ratio"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the records, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--device", choices=PATHS, default="cpu")
    parser.add_argument("--results", type=Path, help="the folder of the records")
    parser.add_argument("--one", action="store_true", help="in this process, and print")
    parser.add_argument("--foretell", action="store_true", help="only hold the recorded peaks against the estimate now")
    options = parser.parse_args(arguments)
    path = PATHS[options.device]
    path = path if options.results is None else options.results / path.name
    if options.foretell:
        lines = [run | foretold(run["network"], run["method"], options.device) for run in read_lines(path)]
        path.unlink()
        for run in lines:
            append(path, run)
        return
    if options.one:
        print(json.dumps(measure(options.networks[0], options.methods[0], options.device)))
        return
    for network in options.networks:
        for method in options.methods:
            key = {"network": network, "method": method}
            if is_done(path, key) or (network, method) in LEFT_OUT:
                continue
            command = [sys.executable, "-m", "experiments.memory", "--one", "--device", options.device]
            command += ["--networks", network, "--methods", method]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            record = {**key, **json.loads(done.stdout.splitlines()[-1])}
            append(path, record)
            print({name: record[name] for name in ("network", "method", "peak", "foretold")}, flush=True)


if __name__ == "__main__":
    main()
