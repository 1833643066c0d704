"""Compute cells of the paper's tables, as `brainsurgeon reproduce` does, and record the commit with each.

python -m experiments.cells mlpnet --checkpoints FOLDER [--seeds 0 1] [--methods cbs-s cbs] [--device cuda]

`--processor` times steps in seconds of the processor, on one thread, for a machine that has other work too. These cells
go into a folder `timed` of their own, and figure 3 shows them.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from brainsurgeon.events.clock import Clock
from brainsurgeon.paper.reproduce.cells import cell_file, compute
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS
from brainsurgeon.paper.reproduce.show import TIMED
from experiments.records import CHECKPOINTS, RESULTS, Record, read_lines, stamped


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the cells that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=PROTOCOLS)
    parser.add_argument("--checkpoints", type=Path, action="append", default=[])
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--sparsities", type=float, nargs="+")
    parser.add_argument("--data", type=Path, help="the folder that holds mnist or cifar10")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--processor", action="store_true", help="time the processor on one thread, not the wall clock")
    options = parser.parse_args(arguments)
    if options.processor:
        torch.set_num_threads(1)
        Clock.counter = staticmethod(time.process_time)
        options.output /= TIMED
    protocol = PROTOCOLS[options.network]
    for seed in range(protocol.seeds) if options.seeds is None else options.seeds:
        path = cell_file(options.output, options.network, seed)
        before = len(read_lines(path))
        try:
            compute(
                protocol,
                options.output,
                [*options.checkpoints, CHECKPOINTS],
                sparsities=tuple(options.sparsities) if options.sparsities else None,
                methods=tuple(options.methods) if options.methods else None,
                seeds=[seed],
                root=options.data,
                device=options.device,
            )
        finally:  # also what was finished before a run was stopped
            stamp(path, before, {"clock": "processor"} if options.processor else None)


def stamp(path: Path, before: int, told: Record | None = None) -> None:
    """Add the commit, and what else is to be told, to the lines that were written after the first so many."""
    lines = read_lines(path)
    kept = lines[:before] + [stamped(line | (told or {})) for line in lines[before:]]
    if lines:
        path.write_text("".join(json.dumps(line) + "\n" for line in kept))


if __name__ == "__main__":
    main()
