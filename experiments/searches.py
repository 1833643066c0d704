"""What each search on the objective of CBS-S gains, and in what time.

    OMP_NUM_THREADS=1 python -m experiments.searches CHECKPOINTS [--network mlpnet resnet20] [--seeds 2]

Every search runs from the same gradients and seeds, with one or more settings, from quick to thorough; selection alone,
no update. Recorded are the CPU seconds of one thread (without the gradients, which are the same for all), the quadratic
objective, the sample loss (on the half of its 5,000 training samples that masks are compared on) and test accuracy.
Results are written after each search, those of other networks kept: experiments/results/benchmarks/searches.json. The
picture is drawn by experiments.searches_figure.
"""

import argparse
import copy
import json
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.engine.budget import make_budget
from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.selection import LocalSearch, Randomized, RecentredSearch, WideSearch
from brainsurgeon.events.clock import Clock
from brainsurgeon.exact.polish import Polish
from brainsurgeon.network.sample_loss import LossJudge
from brainsurgeon.paper.accuracy import accuracy
from experiments.networks import examined, prepare
from experiments.records import BENCHMARKS, COMMIT, Record, read, write

RECORD = BENCHMARKS / "searches.json"
LONG = 3600.0  # the polish is bounded by rounds: its seconds are those of the clock on the wall

SEARCHES: dict[str, Sequence[Selection]] = {
    "rmp": [Randomized()],
    "recentred": [RecentredSearch(max_steps=steps) for steps in (2, 6, 24)],
    "wide": [WideSearch(starts=1, max_steps=4), WideSearch(starts=1), WideSearch(starts=4)],
    "algorithm 1": [LocalSearch(max_steps=steps) for steps in (2, 5, 50)],
    "polish": [Polish(rounds=rounds, seconds=LONG) for rounds in (1, 100)],
}
"""Each search from quick to thorough."""
CASES: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "mlpnet": ({"num_gradients": 2000, "blocks": "model"}, (0.9, 0.98)),
    "resnet20": ({"num_gradients": 500, "blocks": "layer"}, (0.8,)),
}
TOO_LONG = {"resnet20": {"polish": 1}}
"""How many of these settings, from the thorough end, are left out where a run takes long."""
TEST_IMAGES = {"resnet20": 4_000}
"""The first so many of the test set, where an evaluation takes longer than a search."""


class Bench:
    """A network examined once; masks that were evaluated before are not evaluated again."""

    def __init__(self, network: str, checkpoints: Path):
        self.surgery, data = prepare(network, checkpoints, **CASES[network][0])
        few = TEST_IMAGES.get(network)
        self.data = replace(data, test_inputs=data.test_inputs[:few], test_targets=data.test_targets[:few])
        found = examined(self.surgery)
        assert found.quadratic is not None
        self.quadratic, self.sample = found.quadratic, found.sample_loss
        _ = self.quadratic.self_impact, self.sample.flops_per_batch()  # what all searches share
        self._known: dict[bytes, dict[str, float]] = {}

    def run(self, sparsity: float, search: Selection, seed: int) -> dict[str, float]:
        """Search once; return the seconds and what the mask is worth."""
        surgery = self.surgery
        layers = [(layer.name, layer.offset, layer.size) for layer in surgery.weights.layers]
        budget = make_budget("global", sparsity, layers, surgery.device)
        clock = Clock(surgery.device)
        judge = LossJudge(self.sample, clock)
        generator = torch.Generator().manual_seed(seed)
        problem = Problem(surgery.values, budget, generator, self.quadratic, judge, clock=clock)
        began = time.process_time()
        pruned = search(problem)
        seconds = time.process_time() - began
        budget.check(pruned)
        return {"seconds": round(seconds, 3), **self._worth(pruned)}

    def _worth(self, pruned: Tensor) -> dict[str, float]:
        key = pruned.numpy().tobytes()
        if key not in self._known:
            model = copy.deepcopy(self.surgery.original)
            self.surgery.weights.assign(model, self.sample.masked(pruned))
            self._known[key] = {
                "objective": self.quadratic.cost(pruned),
                "sample loss": self.sample.without(pruned).loss(self.sample.num_judging),
                "accuracy": accuracy(model, self.data),
            }
        return self._known[key]


def rows_of(network: str, checkpoints: Path, seeds: int, only: set[str]) -> Iterator[Record]:
    """Yield a row for each search, setting and sparsity."""
    bench = Bench(network, checkpoints)
    for sparsity in CASES[network][1]:
        for name, settings in ((name, SEARCHES[name]) for name in SEARCHES if name in only):
            for search in settings[: len(settings) - TOO_LONG.get(network, {}).get(name, 0)]:
                runs = [bench.run(sparsity, search, seed) for seed in range(seeds)]
                mean = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
                row = {"network": network, "sparsity": sparsity, "search": name, **mean}
                print(json.dumps(row), flush=True)
                yield {**row, "settings": repr(search), "runs": runs, "commit": COMMIT}


def keep(network: str, seeds: int, rows: list[Record]) -> None:
    """Write rows beside those of other networks and of other searches."""
    record = read(RECORD) if RECORD.exists() else {}
    before = record.get(network, {"rows": []})
    new = {row["search"] for row in rows}
    record[network] = {
        "command": f"OMP_NUM_THREADS=1 python -m experiments.searches CHECKPOINTS --network {network} --seeds {seeds}",
        "machine": f"{platform.machine()}, one thread, Python {platform.python_version()}, torch {torch.__version__}",
        "examination": CASES[network][0],
        **({"test images": TEST_IMAGES[network]} if network in TEST_IMAGES else {}),
        "rows": [row for row in before["rows"] if row["search"] not in new] + rows,
    }
    write(RECORD, record)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the searches and write them down one by one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("--network", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=SEARCHES, default=list(SEARCHES), help="these searches")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for network in options.network:
        rows: list[Record] = []
        for row in rows_of(network, options.checkpoints, options.seeds, set(options.only)):
            rows.append(row)
            keep(network, options.seeds, rows)


if __name__ == "__main__":
    main()
