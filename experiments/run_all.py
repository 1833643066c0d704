"""Compute recorded runs with several processes on one machine, each into a folder of its own, and fold them in later.

    python -m experiments.run_all compute --output OUT --checkpoints FOLDER --data FOLDER --device cuda --jobs 6
    python -m experiments.run_all fold --output OUT       # into experiments/results; a cell that is there is replaced

`--only budgets beyond finetune tables gpu` names the kinds of runs wanted. Runs that do not finish within the limit are
stopped; what they had finished is kept. ImageNet's two packed files are looked for in the data folder.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from experiments.cells import stamp
from experiments.records import CHECKPOINTS, RESULTS, ROOT, present

KEY = ("network", "method", "sparsity", "seed", "samples", "max_gradients", "augment")
ALL = ("auto", "magnitude, distilled", "magnitude")
BUDGETS = (
    ("resnet20", None, 240_000, (0.8, 0.9, 0.95), ALL),
    ("resnet20", None, 960_000, (0.8, 0.9, 0.95), ALL),
    ("mobilenet-0.75", 1000, 240_000, (0.5, 0.6, 0.7, 0.8), ("auto",)),
    ("resnet20", 1000, 120_000, (0.7, 0.8, 0.9), ("auto", "magnitude")),
)
"""Network, training samples, sample gradients, sparsities and methods of the runs at the same cost, with crops and
flips; the peer's rate is 0.002 on these networks."""
BEYOND = (
    ("resnet20", None, 422_400, (0.8, 0.9, 0.7, 0.5)),
    ("mobilenet-0.75", 1000, 240_000, (0.7, 0.8, 0.6, 0.5)),
    ("resnet20", 1000, 120_000, (0.9, 0.8, 0.7)),
    ("mlpnet", None, 960_000, (0.98, 0.95, 0.9, 0.8, 0.7, 0.5)),
)
"""Network, training samples, sample gradients and sparsities of the runs in stages, those that take longest first."""
UPDATED = ("cbs-s", "cbs", "mp+cbs-u", "wf-s+cbs-u", "algorithm1", "algorithm1+cbs-u")
TABLES = (
    ("mobilenet-0.75", 3, UPDATED),
    ("resnet20", 5, UPDATED),
    ("cifarnet", 5, (*UPDATED, "rmp", "cbs@1")),
    ("mlpnet", 5, (*UPDATED, "rmp", "cbs@1")),
)
"""Network, seeds and methods of the cells that depend on the searches and updates."""
PLACES = {
    "budgets": ("--data", "--results"),
    "beyond": ("--data", "--results"),
    "finetune": ("--root", "--output"),
    "tables": ("--data", "--output"),
    "gpu": ("--data", "--output"),
}
"""The options that say where the data is and where results go."""


def jobs(options: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """Return the kind and the command of every run."""
    found = [("budgets", ["budgets", *own]) for own in _budgets()]
    for network, samples, gradients, sparsities in BEYOND:
        own = ["beyond", network, "--max-gradients", str(gradients)] + (["--samples", str(samples)] if samples else [])
        found += [
            ("beyond", [*own, "--sparsities", str(sparsity), "--seeds", str(seed)])
            for sparsity in sparsities
            for seed in range(3)
        ]
    found += [("finetune", ["finetune", "resnet20", "--methods", method]) for method in ("staged", "cbs", "mp")]
    for network, seeds, methods in TABLES:
        found += [("tables", ["cells", network, "--seeds", str(s), "--methods", *methods]) for s in range(seeds)]
    found.append(("gpu", ["gpu"]))
    common = ["--checkpoints", str(options.checkpoints.resolve())]
    device = ["--device", options.device]
    return [
        (kind, [sys.executable, "-m", f"experiments.{name}", *rest, *common, *([] if kind == "gpu" else device)])
        for kind, (name, *rest) in found
        if kind in options.only
    ]


def _budgets() -> Iterator[list[str]]:
    """Yield the runs at the same cost: of each budget the first seed of all cells, then the next."""
    for network, samples, gradients, sparsities, methods in BUDGETS:
        own = [network, "--augment", "--peer-rate", "0.002", "--gradients", str(gradients)]
        own += ["--samples", str(samples)] if samples else []
        for seed, sparsity, method in product(range(3), sparsities, methods):
            yield [*own, "--sparsities", str(sparsity), "--seeds", str(seed), "--methods", method]


def compute(options: argparse.Namespace) -> None:
    """Run the jobs, a few at a time, until the limit."""
    started = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    data = options.data.resolve()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BRAINSURGEON_IMAGENET": str(data)}
    log = (options.output / "log.txt").open("a")

    def run(job: tuple[int, tuple[str, list[str]]]) -> None:
        number, (kind, command) = job
        folder = (options.output / f"{number:03d}").resolve()
        source, target = PLACES[kind]
        output = folder / "gpu.json" if kind == "gpu" else folder
        command = [*command, source, str(data), target, str(output)]
        left = options.limit - (time.monotonic() - started)
        if left < options.least:
            return
        folder.mkdir(exist_ok=True)
        begun = time.monotonic()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=left, env=environment, cwd=ROOT, check=False
            )
            words = done.stdout[-300:].strip() + (f" FAILED {done.stderr[-600:]}" if done.returncode else "")
        except subprocess.TimeoutExpired:
            words = "stopped at the limit"
        for path in folder.glob("*.jsonl"):  # what a stopped run left behind carries its commit too
            stamp(path, 0)
        log.write(f"[{time.monotonic() - begun:.0f} s] {' '.join(command)}\n{words}\n")
        log.flush()

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, enumerate(jobs(options))))


def fold(options: argparse.Namespace) -> None:
    """Put finished runs into experiments/results, in the place of older ones of the same key."""
    for path in sorted(options.output.rglob("*.jsonl")):
        target = RESULTS / path.name
        kept = {_key(line): line for line in (target.read_text().splitlines() if target.is_file() else [])}
        for line in path.read_text().splitlines():
            kept[_key(line)] = line
        target.write_text("\n".join(kept.values()) + "\n")
        print(f"{target.name}: {len(kept)} runs")


def _key(line: str) -> tuple[object, ...]:
    run = present(json.loads(line))
    return tuple(run.get(name) for name in KEY)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute or fold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compute", "fold"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, default=CHECKPOINTS)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=86_400.0, help="seconds in all")
    parser.add_argument("--least", type=float, default=15.0, help="seconds that must be left to begin a run")
    parser.add_argument("--only", nargs="+", choices=PLACES, default=list(PLACES))
    options = parser.parse_args(arguments)
    (compute if options.what == "compute" else fold)(options)


if __name__ == "__main__":
    main()
