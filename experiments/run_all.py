"""Compute recorded runs with several processes on one machine, each into a folder of its own, and fold them in later.

    python experiments/run_all.py compute --output OUT --checkpoints FOLDER --data FOLDER --device cuda --jobs 6
    python experiments/run_all.py fold --output OUT       # into experiments/results; a cell that is there is replaced

`--only beyond finetune tables gpu` names the kinds of runs wanted. Runs that do not finish within the limit are
stopped; what they had finished is kept. ImageNet's two packed files are looked for in the data folder.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
KEY = ("network", "method", "sparsity", "seed", "samples", "max_gradients")


def jobs(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return (kind, command) of every run, those that take longest first."""
    out, common = options.output, f"--checkpoints {options.checkpoints} --device {options.device}"
    beyond = f"{sys.executable} {HERE / 'beyond.py'}"
    found = [
        ("beyond", f"{beyond} resnet20 --sparsities {r} --seeds {s} --max-gradients 422400 {common}")
        for r in (0.8, 0.9, 0.7, 0.5)
        for s in (0, 1, 2)
    ]
    found += [
        (
            "beyond",
            f"{beyond} mobilenet-0.75 --samples 1000 --max-gradients 240000 --sparsities {r} --seeds {s} {common}",
        )
        for r in (0.7, 0.8, 0.6, 0.5)
        for s in (0, 1, 2)
    ]
    found += [
        ("beyond", f"{beyond} resnet20 --samples 1000 --sparsities {r} --seeds {s} {common}")
        for r in (0.9, 0.8, 0.7)
        for s in (0, 1, 2)
    ]
    found += [
        ("beyond", f"{beyond} mlpnet --sparsities {r} --seeds {s} --max-gradients 960000 {common}")
        for r in (0.98, 0.95, 0.9, 0.8, 0.7, 0.5)
        for s in (0, 1, 2)
    ]
    tune = f"{sys.executable} {HERE / 'finetune.py'} resnet20 {common}"
    found += [("finetune", f"{tune} --methods {method}") for method in ("auto", "cbs", "mp")]
    code = (
        "from pathlib import Path; from brainsurgeon.paper.reproduce.cells import compute; "
        "from brainsurgeon.paper.reproduce.protocol import PROTOCOLS; "
        "compute(PROTOCOLS['{network}'], Path('{out}'), [Path('{checkpoints}')], seeds=[{seed}], methods={methods}, "
        "root=Path('{data}'), device='{device}')"
    )
    for network, seeds, methods in _tables():
        for seed in seeds:
            filled = code.format(
                network=network,
                out="OUTPUT",
                checkpoints=options.checkpoints,
                seed=seed,
                methods=methods,
                data=options.data,
                device=options.device,
            )
            found.append(("tables", f'{sys.executable} -c "{filled}"'))
    benchmark = HERE.parent / "benchmarks" / "gpu.py"
    found.append(("gpu", f"{sys.executable} {benchmark} --checkpoints {options.checkpoints} --output {out}/gpu.json"))
    return [job for job in found if job[0] in options.only]


def _tables() -> list[tuple[str, range, tuple[str, ...]]]:
    """Return the cells of the tables that depend on the searches and updates."""
    updated = ("cbs-s", "cbs", "mp+cbs-u", "wf-s+cbs-u", "algorithm1", "algorithm1+cbs-u")
    return [
        ("mobilenet-0.75", range(3), updated),
        ("resnet20", range(5), updated),
        ("cifarnet", range(5), (*updated, "rmp", "cbs@1")),
        ("mlpnet", range(5), (*updated, "rmp", "cbs@1")),
    ]


def compute(options: argparse.Namespace) -> None:
    """Run the jobs, a few at a time, until the limit."""
    started = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BRAINSURGEON_IMAGENET": str(options.data)}
    log = (options.output / "log.txt").open("a")

    def run(job: tuple[int, tuple[str, str]]) -> None:
        number, (kind, command) = job
        folder = options.output / f"{number:03d}"
        places = {
            "beyond": f" --data {options.data} --results {folder}",
            "finetune": f" --root {options.data} --output {folder}",
            "gpu": f" --data {options.data}",
            "tables": "",
        }
        command = command.replace("OUTPUT", str(folder)) + places[kind]
        left = options.limit - (time.monotonic() - started)
        if left < options.least:
            return
        folder.mkdir(exist_ok=True)
        begun = time.monotonic()
        try:
            done = subprocess.run(
                command, shell=True, capture_output=True, text=True, timeout=left, env=environment, check=False
            )
            words = done.stdout[-300:].strip() + (f" FAILED {done.stderr[-600:]}" if done.returncode else "")
        except subprocess.TimeoutExpired:
            words = "stopped at the limit"
        log.write(f"[{time.monotonic() - begun:.0f} s] {command}\n{words}\n")
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
    run = json.loads(line)
    return tuple(run.get(name) for name in KEY)


def main() -> None:
    """Compute or fold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compute", "fold"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, default=HERE / "checkpoints")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=86_400.0, help="seconds in all")
    parser.add_argument("--least", type=float, default=15.0, help="seconds that must be left to begin a run")
    parser.add_argument("--only", nargs="+", default=["beyond", "finetune", "tables", "gpu"])
    options = parser.parse_args()
    (compute if options.what == "compute" else fold)(options)


if __name__ == "__main__":
    main()
