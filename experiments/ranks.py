"""Time the pruning of a small Llama on one or several processes, compare the masks, and record it.

    torchrun --nproc-per-node 2 -m experiments.ranks
    python -m experiments.ranks

The model has random weights (4 blocks, 3.2 million weights in their linear layers); 64 sequences of 256 random tokens.
It is pruned layer by layer in three patterns, and by training (`gradual`, with a learning rate that is given) in two
ways. Each rank works on one core. Under torchrun the first process prunes alone before it joins the others: both lines
are of one call, and the second says how many entries of the masks differ. Processor seconds are those of the busiest
rank: they hardly depend on what else the machine does. Each call adds its lines to
experiments/results/benchmarks/ranks.jsonl.
"""

import argparse
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon import PruningResult, distributed
from brainsurgeon.pruning.prune import prune
from experiments.records import BENCHMARKS, append

TRAINED: dict[str, dict[str, Any]] = {"gradual": {}, "gradual, loss alone": {"distil": 0.0}}
"""Training towards the dense outputs (so few samples are held out), and by the loss alone."""
WAYS = ("unstructured", "row", "2:4", *TRAINED)
"""Patterns of layer-wise pruning, and training."""
STEPS = ("moments", "layers", "training")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prune in each way, alone and with all ranks, and record times and masks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--gradients", type=int, default=256, help="sample gradients of training")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    alone: dict[str, Mapping[str, Tensor]] = {}
    if os.environ.get("RANK", "0") == "0":  # the others wait until it joins them
        alone = {way: recorded(options, way, {}) for way in options.ways}
    distributed.start()
    if distributed.world_size() > 1:
        for way in options.ways:
            recorded(options, way, alone)
    distributed.stop()


def recorded(options: argparse.Namespace, way: str, alone: Mapping[str, Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Prune in one way, record how it went, beside the masks of one process where there are any; return the masks."""
    settings: dict[str, Any] = {"budget": "uniform", "pattern": way}
    if way in TRAINED:
        settings = {"method": "gradual", "max_gradients": options.gradients, "learning_rate": 3e-4} | TRAINED[way]
    tokens = torch.randint(1000, (options.sequences, 256), generator=torch.Generator().manual_seed(1))
    line, result = timed(small_llama(options.width), tokens, settings)
    if distributed.is_first():
        about = {"ranks": distributed.world_size(), "width": options.width, "way": way}
        if way in TRAINED:
            about["gradients"] = options.gradients
        line = about | line | (differing(alone[way], result.masks) if alone else {})
        append(BENCHMARKS / "ranks.jsonl", line)
        print(line, flush=True)
    return result.masks


def differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how many entries of two sets of masks differ, of how many."""
    found = sum(int((one[name] != mask).sum()) for name, mask in other.items())
    return {"masks_differ": found, "of": sum(mask.numel() for mask in other.values())}


def small_llama(width: int) -> nn.Module:
    """Return a Llama of four blocks with random weights, the same on every rank."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=256,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def timed(model: nn.Module, tokens: Tensor, settings: dict[str, Any]) -> tuple[dict[str, Any], PruningResult]:
    """Prune once; return seconds by the wall, by step, and of the processor, and the result."""
    distributed.barrier()
    wall, own = time.perf_counter(), time.process_time()
    common: dict[str, Any] = {"method": "layerwise", "exclude": ["lm_head", "*embed*"], "progress": False}
    result = prune(model, tokens, 0.5, loss="next_token", **common | settings)
    wall, own = time.perf_counter() - wall, time.process_time() - own
    count = distributed.world_size()
    busiest = float(distributed.gather_rows(torch.tensor([own], dtype=torch.float64), [1] * count).max())
    steps = {name: round(result.seconds[name], 2) for name in STEPS if name in result.seconds}
    assert result.loss_after is not None
    assert math.isfinite(result.loss_after)
    found = {"pruned": result.pruned, "seconds": round(wall, 2), "processor": round(busiest, 2), "steps": steps}
    return found | {"loss": round(result.loss_after, 5)}, result


if __name__ == "__main__":
    main()
