"""Prune a causal language model layer by layer, and record its perplexity beside the baselines'.

    python -m experiments.language FOLDER --calibrate valid.npy --test test.npy [--device cuda] [--methods layerwise …]

FOLDER is a local Hugging Face folder; the .npy files hold token numbers. Calibrated on 128 windows of the first file;
perplexity is exp of the mean loss over whole windows of the second. All linear layers of the blocks are pruned, the
embedding and the head are left alone. Every finished run is a line of experiments/results/language-NAME.jsonl.
"""

import argparse
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brainsurgeon.events import Event
from brainsurgeon.files.language import head_of
from brainsurgeon.files.versions import versions
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.pruning.prune import prune
from experiments.records import RESULTS, append, read_lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()
    calibration = drawn_windows(options.calibrate, options.window, options.samples, options.seed)
    test = windows(options.test, options.window)
    path = options.results / f"language-{options.name or Path(options.model).name}.jsonl"
    print(f"dense perplexity {perplexity(model, test, options.device):.3f}", flush=True)
    for spec in options.runs:
        method, budget, pattern, sparsity, *more = spec.split("/")
        settings = {name: yaml_value(value) for name, _, value in (pair.partition("=") for pair in more)}
        key = {
            "method": method,
            "budget": budget,
            "pattern": pattern,
            "sparsity": float(sparsity),
            "seed": options.seed,
        }
        key |= {"samples": len(calibration), "window": options.window, "dtype": options.dtype, "given": settings}
        if any(key.items() <= run.items() for run in read_lines(path)):
            continue
        line = key | run_once(model, calibration, test, key, options.device, settings)
        append(path, line)
        print(
            f"{spec}: {line['perplexity']:.2f} in {line['seconds']:.1f} s, peak {line['peak_bytes'] / 2**20:.0f} MiB",
            flush=True,
        )


def run_once(
    model: nn.Module, calibration: Tensor, test: Tensor, key: dict[str, Any], device: str, given: dict[str, Any]
) -> dict[str, object]:
    """Prune once and return what is recorded."""
    settings: dict[str, Any] = dict(given) | ({} if key["pattern"] == "default" else {"pattern": key["pattern"]})
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    start, own = time.perf_counter(), time.process_time()
    result = prune(
        model,
        calibration,
        float(str(key["sparsity"])),
        str(key["method"]),
        "next_token",
        exclude=head_of(model),
        budget=str(key["budget"]),
        seed=int(str(key["seed"])),
        device=device,
        progress=False,
        callback=lambda event: _tell(event),
        **settings,
    )
    seconds, own = time.perf_counter() - start, time.process_time() - own
    peak = torch.cuda.max_memory_allocated() if cuda else 0
    return {
        "perplexity": perplexity(result.model, test, device),
        "seconds": seconds,
        "processor_seconds": own,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "parts_seconds": result.seconds,
        "peak_bytes": peak,
        "pruned": result.pruned,
        "size": result.size,
        "loss_before": result.loss_before,
        "loss_after": result.loss_after,
        "notes": list(result.notes)[:5],
        "settings": {name: value for name, value in result.settings.items() if name != "errors"},
        "versions": versions(device),
    }


def yaml_value(text: str) -> Any:
    """Return a number or a truth where the text is one, else the text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _tell(event: Event) -> None:
    if event.stage not in ("layers", "allocation") and event.total == event.done:
        print(event.stage, event.done, dict(event.values), flush=True)


def windows(path: Path, length: int) -> Tensor:
    """Return whole windows of tokens, side by side."""
    tokens = torch.from_numpy(np.load(path).astype(np.int64))
    return tokens[: len(tokens) // length * length].view(-1, length)


def drawn_windows(path: Path, length: int, count: int, seed: int = 0) -> Tensor:
    """Return some of the windows, drawn at random."""
    found = windows(path, length)
    return found[torch.randperm(len(found), generator=torch.Generator().manual_seed(seed))[:count]]


@torch.no_grad()
def perplexity(model: nn.Module, tokens: Tensor, device: str, batch: int = 8) -> float:
    """Return exp of the mean loss over the windows; the first token of each is not predicted."""
    home = next(model.parameters()).device
    loss = BatchLoss(model.to(device), "next_token")
    total = sum(float(loss(part.to(device))) * len(part) for part in tokens.split(batch))
    model.to(home)
    return math.exp(total / len(tokens))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--name")
    parser.add_argument("--calibrate", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--runs", nargs="*", default=RUNS, help="method/budget/pattern/sparsity")
    return parser


RUNS = [
    *(f"{method}/uniform/default/{s}" for s in (0.5, 0.6, 0.7) for method in ("wanda", "sparsegpt", "layerwise")),
    *(f"layerwise/global/default/{s}" for s in (0.5, 0.6, 0.7)),
    *(f"{method}/uniform/2:4/0.5" for method in ("wanda", "sparsegpt", "layerwise")),
]


if __name__ == "__main__":
    main()
