"""How long 2:4 layers take in torch's semi-structured kernels, beside the same layers dense: needs a CUDA device.

python -m experiments.semi_structured [--output FILE.json]
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.export import to_semi_structured
from brainsurgeon.files.versions import versions
from experiments.records import BENCHMARKS, write

SHAPES = ((1024, 1024), (4096, 4096), (14336, 4096), (4096, 14336))
"""Outputs × inputs: the last two are the MLP of a language model of 7 to 8 billion weights."""
ROWS = (64, 1024, 8192)
"""Tokens in a batch."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every shape and record it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "semi-structured.json")
    options = parser.parse_args(arguments)
    rows = [measured(outputs, inputs, rows) for outputs, inputs in SHAPES for rows in ROWS]
    write(options.output, {"rows": rows, "versions": versions("cuda")})


@torch.no_grad()
def measured(outputs: int, inputs: int, rows: int) -> dict[str, Any]:
    """Return milliseconds of one layer, dense and 2:4, and how far their results are apart."""
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(inputs, outputs, bias=False)).cuda().half()
    weight = dense[0].weight
    assert isinstance(weight, Tensor)
    groups = weight.unflatten(1, (-1, 4))
    kept = torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, groups.abs().topk(2, -1).indices, True)
    weight.mul_(kept.flatten(1))
    sparse, _ = to_semi_structured(dense)
    x = torch.randn(rows, inputs, device="cuda", dtype=torch.float16)
    apart = float((sparse(x) - dense(x)).float().norm() / dense(x).float().norm())
    times = {name: milliseconds(partial(model, x)) for name, model in (("dense", dense), ("2:4", sparse))}
    shown = f"{times['dense']:.3f} ms dense, {times['2:4']:.3f} ms 2:4, apart {apart:.1e}"
    print(f"{outputs} x {inputs}, {rows} rows: {shown}", flush=True)
    return {"outputs": outputs, "inputs": inputs, "rows": rows, "milliseconds": times, "apart": apart}


def milliseconds(call: Callable[[], Tensor], repeats: int = 50) -> float:
    """Return the median time of a call on the device."""
    for _ in range(10):
        call()
    spans = []
    for _ in range(repeats):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        call()
        ended.record()
        torch.cuda.synchronize()
        spans.append(begun.elapsed_time(ended))
    return sorted(spans)[repeats // 2]


if __name__ == "__main__":
    main()
