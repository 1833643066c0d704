"""How the time of layer-wise pruning grows with blocks and with tokens: a small Llama with random weights, on a CPU.

python -m experiments.layer_growth [--output FILE.json]

Processor seconds of the part that grows, the least of `REPEATS` runs, and the straight line through them.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brainsurgeon.files.versions import versions
from brainsurgeon.pruning.prune import prune
from experiments.records import BENCHMARKS, Record, read, table, write

BLOCKS, WINDOWS, WINDOW = (2, 4, 8, 16), (64, 128, 256, 512), 64
REPEATS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "layer-growth.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    seconds(2, 64)  # kernels are loaded once
    grown: dict[str, Any] = {
        "blocks": {"at": BLOCKS, "seconds": [least(blocks, 128) for blocks in BLOCKS]},
        "tokens": {"at": [n * WINDOW for n in WINDOWS], "seconds": [least(4, windows) for windows in WINDOWS]},
    }
    write(
        options.output, {name: found | fitted(**found) for name, found in grown.items()} | {"versions": versions("cpu")}
    )
    print(growth_table())


def least(blocks: int, windows: int) -> float:
    """Return the least processor seconds of a few runs."""
    return min(seconds(blocks, windows) for _ in range(REPEATS))


def seconds(blocks: int, windows: int) -> float:
    """Return the processor seconds of one run."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": blocks}
    config = LlamaConfig(vocab_size=512, num_attention_heads=4, num_key_value_heads=4, **sizes)
    model, tokens = LlamaForCausalLM(config).eval(), torch.randint(0, 512, (windows, WINDOW))
    start = time.process_time()
    settings: dict[str, Any] = {"exclude": ["*embed*", "lm_head*"], "budget": "uniform", "max_samples": windows}
    prune(model, tokens, 0.5, "layerwise", "next_token", progress=False, **settings)
    return time.process_time() - start


def fitted(at: Sequence[int], seconds: Sequence[float]) -> Record:
    """Return the straight line through the points, and how much of their variance it explains."""
    slope, offset = np.polyfit(at, seconds, 1)
    rest = np.asarray(seconds) - (slope * np.asarray(at) + offset)
    return {"slope": float(slope), "offset": float(offset), "explained": float(1 - rest.var() / np.var(seconds))}


def growth_table() -> str:
    """Tabulate the points and the lines."""
    record = read(BENCHMARKS / "layer-growth.json")
    rows = []
    for name in ("blocks", "tokens"):
        found = record[name]
        points = ", ".join(f"{at:,}: {spent:.1f} s" for at, spent in zip(found["at"], found["seconds"], strict=True))
        line = f"{found['offset']:.2f} + {found['slope']:.2g} · {name}"
        rows.append([name, points, line, f"{100 * found['explained']:.1f}%"])
    return table(["grows", "measured", "line, seconds", "explained"], rows)


if __name__ == "__main__":
    main()
