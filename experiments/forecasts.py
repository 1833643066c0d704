"""Hold what is foretold of layer-wise runs against what they take: seconds, and the peak of memory.

    python -m experiments.forecasts [--networks llama …]

Each run is a process of its own, on one core: its seconds, and the peak of its resident memory above what it held with
the model and the samples loaded. Networks are untrained and samples random. A run that is in the records is not done
again. `disk` is the `llama` with its weights left on disk.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.records import RESULTS, append, command_line, is_done, read_lines, table

PATH = RESULTS / "forecasts.jsonl"
MIB = 1 << 20
NETWORKS = {
    "llama": "Llama of 6 blocks of width 256, 64 × 128 tokens",
    "disk": "the same, its weights on disk",
    "resnet20": "ResNet20, 300 images",
    "mlp": "784→1024→1024→10, 1,000 samples",
}


def made(network: str, place: Path) -> tuple[nn.Module, Any, dict[str, Any]]:
    """Return a network, its samples, and what a `Surgery` of it is given."""
    torch.manual_seed(0)
    if network in ("llama", "disk"):
        return _language(network == "disk", place)
    classes = torch.randint(10, (1000,))
    if network == "mlp":
        layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
        return nn.Sequential(*layers), (torch.randn(1000, 784), classes), {}
    from brainsurgeon.paper.models import build

    model = build("resnet20", torch.Generator().manual_seed(0))
    return model, (torch.randn(300, 3, 32, 32), classes[:300]), {}


def _language(on_disk: bool, place: Path) -> tuple[nn.Module, Any, dict[str, Any]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    from brainsurgeon.files.language import head_of
    from brainsurgeon.files.on_disk import load_on_disk

    sizes: dict[str, Any] = {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
    }
    model: Any = LlamaForCausalLM(LlamaConfig(vocab_size=2000, max_position_embeddings=256, **sizes))
    if on_disk:
        model.save_pretrained(place / "dense", max_shard_size="20MB")
        model = load_on_disk(place / "dense", place / "pruned")
    return model, torch.randint(2000, (64, 128)), {"loss": "next_token", "exclude": head_of(model)}


def status(field: str) -> int:
    """Return a field of this process's memory in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def measure(network: str, place: Path) -> dict[str, Any]:
    """Foretell a run in this process, then make it, and return both."""
    from brainsurgeon import Surgery
    from brainsurgeon.events.loading import load
    from brainsurgeon.pruning.layerwise.forecast import forecast

    torch.set_num_threads(1)
    load()
    model, data, given = made(network, place)
    known = forecast(Surgery(model, data, progress=False, **given), 0.5, "layerwise")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before, start = status("VmRSS"), time.perf_counter()
    result = Surgery(model, data, progress=False, **given).prune(0.5, "layerwise", in_place=network == "disk")
    return {
        "foretold_seconds": sum(known.seconds.values()),
        "seconds": time.perf_counter() - start,
        "foretold_bytes": sum(known.memory.values()),
        "peak_bytes": status("VmHWM") - before,
        "steps": {"foretold": known.seconds, "taken": result.seconds},
        "parts": known.memory,
    }


def forecast_table() -> str:
    """Tabulate what was foretold and what was taken."""
    rows = []
    for run in sorted(read_lines(PATH), key=lambda run: list(NETWORKS).index(run["network"])):
        seconds = [f"{run[key]:.1f}" for key in ("foretold_seconds", "seconds")]
        sizes = [f"{run[key] / MIB:,.0f}" for key in ("foretold_bytes", "peak_bytes")]
        rows.append([NETWORKS[run["network"]], *seconds, *sizes])
    return table(["network", "foretold, s", "taken, s", "foretold, MiB", "peak, MiB"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the records, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--one", action="store_true", help="in this process, and print")
    options = parser.parse_args(arguments)
    if options.one:
        with tempfile.TemporaryDirectory() as place:
            print(json.dumps(measure(options.networks[0], Path(place))))
        return
    for network in options.networks:
        if is_done(PATH, {"network": network}):
            continue
        command = [sys.executable, "-m", "experiments.forecasts", "--one", "--networks", network]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        line = command_line("forecasts", ["--networks", network])
        append(PATH, {"network": network, **found, "command": line})
        print(network, {key: found[key] for key in ("foretold_seconds", "seconds", "foretold_bytes", "peak_bytes")})


if __name__ == "__main__":
    main()
