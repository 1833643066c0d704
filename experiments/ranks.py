"""Time layer-wise pruning of a small Llama on one or several processes, and record it.

    python -m experiments.ranks
    torchrun --nproc-per-node 2 -m experiments.ranks

The model has random weights (4 blocks, 3.2 million weights in their linear layers); 64 sequences of 256 random tokens.
Each rank works on one core. Processor seconds are those of the busiest rank: they do not depend on what else the
machine does. Each call adds its lines to experiments/results/benchmarks/ranks.jsonl.
"""

import argparse
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from brainsurgeon import distributed
from brainsurgeon.pruning.prune import prune
from experiments.records import BENCHMARKS, append

PATTERNS = ("unstructured", "row", "2:4")
STEPS = ("moments", "layers")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prune in each pattern and record the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=64)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    distributed.start()
    tokens = torch.randint(1000, (options.sequences, 256), generator=torch.Generator().manual_seed(1))
    for pattern in PATTERNS:
        line = timed(small_llama(options.width), tokens, pattern)
        if distributed.is_first():
            append(BENCHMARKS / "ranks.jsonl", {"ranks": distributed.world_size(), "width": options.width} | line)
            print(distributed.world_size(), line, flush=True)
    distributed.stop()


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


def timed(model: nn.Module, tokens: torch.Tensor, pattern: str) -> dict[str, Any]:
    """Prune once; return seconds by the wall, by step, and of the processor."""
    distributed.barrier()
    wall, own = time.perf_counter(), time.process_time()
    result = prune(
        model,
        tokens,
        0.5,
        "layerwise",
        "next_token",
        exclude=["lm_head", "*embed*"],
        budget="uniform",
        pattern=pattern,
        progress=False,
    )
    wall, own = time.perf_counter() - wall, time.process_time() - own
    count = distributed.world_size()
    busiest = float(distributed.gather_rows(torch.tensor([own], dtype=torch.float64), [1] * count).max())
    steps = {name: round(result.seconds[name], 2) for name in STEPS}
    found = {"pattern": pattern, "pruned": result.pruned, "seconds": round(wall, 2), "processor": round(busiest, 2)}
    assert result.loss_after is not None
    assert math.isfinite(result.loss_after)
    return found | {"steps": steps, "loss": round(result.loss_after, 5)}


if __name__ == "__main__":
    main()
