"""What pruning buys, network by network: bytes, multiply-adds and measured latency (python -m experiments.worth).

Neither sizes nor times depend on the values of the weights, so the networks have random ones and need no checkpoint;
every layer is pruned to the same sparsity by magnitude. Writes experiments/results/benchmarks/worth.json; `--tables`
prints those of docs/worth.md from it.
"""

import argparse
import platform
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from brainsurgeon.cost import RUNTIMES, worth
from brainsurgeon.engine.budget import make_budget
from brainsurgeon.files.versions import versions
from brainsurgeon.network.weights import find_weights
from brainsurgeon.paper.models import build
from experiments.records import BENCHMARKS, Record, read, write

SPARSITIES = (0.5, 0.8, 0.9, 0.95)
SHAPES = {
    "mlpnet": (1, 28, 28),
    "resnet20": (3, 32, 32),
    "mobilenet": (3, 224, 224),
    "linear-2048": (2048,),
}
TITLES = {
    "mlpnet": "MLPNet",
    "resnet20": "ResNet20",
    "mobilenet": "MobileNetV1",
    "linear-2048": "2048→2048→2048, linear",
}


def network(name: str) -> nn.Module:
    """Return a network with random weights."""
    if name != "linear-2048":
        return build(name).eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).eval()


def pruned(name: str, sparsity: float) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Return a network pruned by magnitude, every layer alike, and its masks."""
    model = network(name)
    weights = find_weights(model)
    values = weights.flatten(model)
    layers = [(layer.name, layer.offset, layer.size) for layer in weights.layers]
    mask = make_budget("uniform", sparsity, layers, values.device).lowest(values.abs())
    weights.assign(model, values.masked_fill(mask, 0))
    return model, weights.unflatten(mask)


def cell(name: str, sparsity: float, batch: int, seconds: float) -> Record:
    """Measure one network at one sparsity and batch size."""
    model, masks = pruned(name, sparsity)
    example = torch.randn(batch, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    found = worth(model, example, masks, RUNTIMES, seconds)
    size = sum(mask.numel() for mask in masks.values())
    gone = sum(int(mask.sum()) for mask in masks.values())
    others = sum(v.numel() * v.element_size() for n, v in model.state_dict().items() if n not in masks)
    ideal = size / 8 + 4 * (size - gone) + others
    return {
        "network": name,
        "sparsity": sparsity,
        "batch": batch,
        **found.to_dict(),
        "bytes_ideal": ideal,
        "compressed_to_ideal": found.bytes_compressed / ideal,
        "speed_up": {runtime: found.speed_up(runtime) for runtime in ("torch-csr", "openvino-sparse")},
        "verdicts": found.verdicts(),
    }


def tables(cells: list[Record]) -> str:
    """Return the tables of sizes and of times."""
    lines = [
        "| network | sparsity | bytes dense | compressed | of bits + values | multiply-adds | not with a zero |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {TITLES[c['network']]} | {c['sparsity']} | {c['bytes_dense']:,} | {c['bytes_compressed']:,} | "
        f"{c['compressed_to_ideal']:.2f} × | {c['multiply_adds']:,} | {c['multiply_adds_sparse']:,} |"
        for c in cells
        if c["batch"] == 1
    ]
    lines += [
        "",
        "Milliseconds a batch; in brackets a sparse runtime's speed over its dense twin's, bold from 1.05 on:",
        "",
        "| network | batch | sparsity | torch | torch CSR | onnxruntime | OpenVINO | OpenVINO, sparse weights on |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in cells:
        times = {latency["runtime"]: latency["milliseconds"] for latency in c["latencies"]}
        shown = [f"{short(times[name])}{gain(c, name)}" if times[name] else "–" for name in RUNTIMES]
        lines.append(f"| {TITLES[c['network']]} | {c['batch']} | {c['sparsity']} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def short(number: float) -> str:
    """Return three digits, or all before the point."""
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def gain(found: Record, runtime: str) -> str:
    """Return a sparse runtime's speed over its dense twin's, in brackets."""
    value = found["speed_up"].get(runtime)
    if value is None:
        return ""
    return f" (**{value:.2f}**)" if value >= 1.05 else f" ({value:.2f})"


def measured(given: argparse.Namespace) -> list[Record]:
    """Measure what is asked for and return it among the cells that are recorded already."""
    old = read(given.output)["cells"] if given.output.exists() else []
    found = {(c["network"], c["batch"], c["sparsity"]): c for c in old}
    for name in given.networks:
        for batch in given.batches:
            for sparsity in SPARSITIES:
                found[name, batch, sparsity] = cell(name, sparsity, batch, given.seconds)
                print(name, batch, sparsity, found[name, batch, sparsity]["speed_up"], flush=True)
    return sorted(found.values(), key=lambda c: (list(SHAPES).index(c["network"]), c["batch"], c["sparsity"]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the record and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "worth.json")
    parser.add_argument("--tables", action="store_true", help="only print the tables of what is recorded")
    given = parser.parse_args(arguments)
    if not given.tables:
        made = {"command": "python -m experiments.worth", "processor": processor(), "versions": versions("cpu")}
        write(given.output, {**made, "cells": measured(given)})
    print(tables(read(given.output)["cells"]))


def processor() -> str:
    """Return what Linux calls the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
