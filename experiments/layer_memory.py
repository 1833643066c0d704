"""Hold the peak of device memory of layer-wise runs against the largest block, its moments and one batch.

    python -m experiments.layer_memory FOLDER --tokens valid.npy [--device cuda] [--results FOLDER]

FOLDER is a local Hugging Face folder; the .npy file holds token numbers. Each run prunes the linear layers of the
blocks by a half. "One batch" is what a pass of one batch through a block makes, or one sequence through the head with
its logits and back, whichever is more; both are measured. Every run is a line of
experiments/results/layer-memory.jsonl. On a CPU the bytes are those of a pretended device (`live_bytes.py`), and slow
to count: give fewer --blocks and --samples.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.files.language import head_of
from brainsurgeon.files.versions import versions
from brainsurgeon.network.along_chain import PROBED
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import frozen, without_cache
from brainsurgeon.network.partition import find_chain
from brainsurgeon.network.streaming import Stream
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.layerwise.method import TOKENS
from brainsurgeon.pruning.prune import prune
from experiments.language import drawn_windows
from experiments.live_bytes import PRETENDED, LiveBytes
from experiments.records import RESULTS, Record, append, command_line

MIB = 1 << 20
ALLOWED = 1.5
RUNS = ("layerwise/uniform", "layerwise/global", "sparsegpt/uniform", "wanda/uniform")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all runs."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    from transformers import AutoModelForCausalLM

    changes = {} if options.blocks is None else {"num_hidden_layers": options.blocks}
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, **changes).eval()
    calibration = drawn_windows(options.tokens, options.window, options.samples)
    with LiveBytes() if options.device == "cpu" else nullcontext() as live:
        device = PRETENDED if live is not None else torch.device(options.device)
        meter = Meter(device, live)
        allowed = allowance(model, calibration, meter)
        for spec in options.runs:
            line = _run(model, calibration, spec, meter)
            line |= allowed | {"ratio": line["peak_bytes"] / allowed["allowed_bytes"]}
            line |= {"model": options.name or Path(options.model).name, "blocks": model.config.num_hidden_layers}
            line |= {"pretended": live is not None, "versions": versions(options.device)}
            line |= {"command": command_line("layer_memory", given)}
            append(options.results / "layer-memory.jsonl", line)
            shown = (f"{name[:-6]} {line[name] / MIB:.0f} MiB" for name in ("peak_bytes", *allowed))
            print(f"{spec}: {', '.join(shown)}, ratio {line['ratio']:.2f}, {line['seconds']:.0f} s", flush=True)


class Meter:
    """The bytes that live on a device: torch's own count on a GPU, ours on a pretended device."""

    def __init__(self, device: torch.device, live: LiveBytes | None = None) -> None:
        self.device, self.live = device, live

    def peak(self, work: Callable[[], Any], own: bool = True) -> int:
        """Return the most that lives while some work is done; without its `own` the bytes from before are left out."""
        gc.collect()
        if self.live is not None:
            before = 0 if own else self.live.now
            self.live.start_again()
            work()
            return self.live.peak - before
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = 0 if own else torch.cuda.memory_allocated(self.device)
        work()
        torch.cuda.synchronize(self.device)
        return torch.cuda.max_memory_allocated(self.device) - before


def allowance(model: nn.Module, calibration: Tensor, meter: Meter) -> dict[str, int]:
    """Return the bytes of the largest block, its moments, one batch through it and one sequence through the head."""
    loss = BatchLoss(model, "next_token")
    names = find_weights(model, None, head_of(model)).names
    layers = linear_maps(model, names)

    def stream(batch: Tensor) -> Stream:
        return Stream(model, lambda some: loss(some.to(meter.device)), [batch], layers, chain, meter.device)

    with frozen(model), without_cache(model):
        chain = find_chain(model, lambda: loss(calibration[:1, :PROBED]), names)
        sizes = {name: _bytes(model.get_submodule(name)) for name in chain.names}
        largest = max(chain.names, key=lambda name: sizes[name])
        moments, block = _through_block(stream(calibration[:TOKENS]), largest, meter)
        head = _through_head(stream(calibration[:1]), meter)
    total = sizes[largest] + moments + max(block, head)
    found = {"block_bytes": sizes[largest], "moments_bytes": moments, "block_pass_bytes": block}
    return found | {"head_pass_bytes": head, "allowed_bytes": int(ALLOWED * total)}


def _through_block(stream: Stream, name: str, meter: Meter) -> tuple[int, int]:
    """Return the bytes of the moments of a block's layers, and of one pass through it."""
    with closing(stream.parts()) as parts:
        part = next(part for part in parts if part.name == name)
        moments = sum(_moments(group[0]) for group in part.groups)
        return moments, meter.peak(lambda: part.run(0), own=False)


def _through_head(stream: Stream, meter: Meter) -> int:
    """Return the bytes of one pass through the head and back, beside its weights."""
    for _ in stream.steps()[0](True):
        pass
    state = stream.hidden[0].to(meter.device).requires_grad_()
    with stream.passed_over() as run:
        return meter.peak(lambda: run(0, state).backward(), own=False)


def _moments(layer: LinearMap) -> int:
    return 8 * layer.groups * int(layer.rows(layer.weight).shape[-1]) ** 2


def _bytes(module: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in module.parameters())


def _run(model: nn.Module, calibration: Tensor, spec: str, meter: Meter) -> Record:
    method, _, budget = spec.partition("/")
    start = time.perf_counter()
    peak = meter.peak(
        lambda: prune(
            model,
            calibration,
            0.5,
            method,
            "next_token",
            exclude=head_of(model),
            budget=budget,
            device=meter.device,
            progress=False,
        )
    )
    seconds = time.perf_counter() - start
    key = {"method": method, "budget": budget, "sparsity": 0.5, "samples": len(calibration)}
    return key | {"window": calibration.shape[1], "peak_bytes": peak, "seconds": seconds}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--name")
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--blocks", type=int, help="only so many of the model's blocks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--runs", nargs="*", default=RUNS, help="method/budget")
    return parser


if __name__ == "__main__":
    main()
