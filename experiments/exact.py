"""How far from optimal prunings are, and how fast that can be proven.

    python -m experiments.exact formulations            # each formulation, random instances of growing size
    python -m experiments.exact largest CHECKPOINTS     # the largest real sub-block solved in a minute
    python -m experiments.exact instances CHECKPOINTS   # 60 sub-blocks of MLPNet and ResNet20: every heuristic's gap
    python -m experiments.exact polished CHECKPOINTS    # the same: the polish and the wide search with more time
    python -m experiments.exact networks CHECKPOINTS    # whole networks: costs at equal time, certificates, accuracy

Each writes experiments/results/exact-NAME.json, with the command and the machine. One thread: OMP_NUM_THREADS=1.
"""

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from brainsurgeon.exact import Instance, solve
from experiments.exact_blocks import instances, polished, sub_blocks, surgeries
from experiments.exact_networks import networks
from experiments.records import RESULTS, Record, command_line, write

JOINT = ("branch-and-bound", "benders", "cbs")
SELECTION = ("branch-and-bound-s", "cbs-s", "cbs-s-dense", "cbs-s-linear")


def formulations(_: argparse.Namespace) -> Record:
    """Solve random instances with K = 16, half of the weights pruned; a formulation stops growing when it fails."""
    rows = []
    for formulation in (*JOINT, *SELECTION):
        for size in (10, 20, 30, 40, 60, 80, 100):
            rng = np.random.default_rng(size)
            G, w = rng.normal(size=(16, size)), rng.normal(size=size)
            found = solve(Instance.from_gradients(G, w, 1e-3), size // 2, formulation, 60.0)
            proof = {"status": found.status, "gap": found.gap, "seconds": found.seconds, "nodes": found.nodes}
            rows.append({"formulation": formulation, "N": size, **proof, "objective": found.objective})
            print(found.summary(), flush=True)
            if found.status != "optimal":
                break
    return {"K": 16, "damping": 1e-3, "time_limit": 60.0, "rows": rows}


def largest(options: argparse.Namespace) -> Record:
    """Solve ever larger sub-blocks, one of each size; a series ends where a minute is not enough."""
    rows = []
    for network, surgery, _ in surgeries(options):
        blocks = {size: sub_blocks(surgery, size, 1)[0] for size in (40, 64, 100, 150, 200, 300)}
        for sparsity in (0.5, 0.8):
            for formulation in ("branch-and-bound", "branch-and-bound-s"):
                for size, quadratic in blocks.items():
                    found = solve(quadratic, round(sparsity * size), formulation, 60.0)
                    proof = {"status": found.status, "gap": found.gap, "seconds": found.seconds, "nodes": found.nodes}
                    case = {"network": network, "N": size, "sparsity": sparsity, "formulation": formulation}
                    rows.append({**case, **proof})
                    print(network, sparsity, found.summary(), flush=True)
                    if found.status != "optimal":
                        break
    return {"time_limit": 60.0, "rows": rows}


COMMANDS = {
    "formulations": formulations,
    "largest": largest,
    "instances": instances,
    "polished": polished,
    "networks": networks,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the comparisons and write its record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("checkpoints", type=Path, nargs="?", default=Path("checkpoints"))
    parser.add_argument("--size", type=int, default=64, help="weights of a sub-block")
    parser.add_argument("--count", type=int, default=30, help="sub-blocks of each network")
    parser.add_argument("--network", nargs="+", default=["mlpnet", "resnet20"])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each search")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter()
    found = COMMANDS[options.what](options)
    record = {
        "command": command_line("exact", sys.argv[1:] if arguments is None else arguments),
        "machine": f"{platform.machine()}, one thread, Python {platform.python_version()}, torch {torch.__version__}",
        "seconds in all": time.perf_counter() - began,
        **found,
    }
    path = RESULTS / f"exact-{options.what}.json"
    write(path, record)
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
