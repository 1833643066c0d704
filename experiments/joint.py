"""Selection that sees the update (joint), against selections that do not, each followed by CBS-U.

    OMP_NUM_THREADS=1 python experiments/joint.py mlpnet --checkpoints FOLDER
    python experiments/joint.py mlpnet --gradients 10000 --checkpoints FOLDER --device cuda
    python experiments/joint.py resnet20 --checkpoints FOLDER --device cuda

A network is examined once a seed, and every mask is chosen once a sparsity from the same gradients. It is updated with
the part of CBS-U that the sample loss likes and, under "whole", with all of it; `cbs` has `mp` as a rival. A line
records the cost of the mask without an update and after the best one, the sample loss (on the half of its 5,000
training samples that masks are compared on), test accuracy, and the seconds of the selection: CPU seconds, on a GPU
those of the clock. Finished lines of experiments/results/joint.jsonl are not computed again.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.data.images import ImageData
from brainsurgeon.evaluate import accuracy
from brainsurgeon.methods import RIVALS, SELECTIONS, SHORT, UPDATES, Method
from brainsurgeon.problem import Problem, Selection
from brainsurgeon.reproduce.cells import versions
from brainsurgeon.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.result import PruningResult
from brainsurgeon.selection import Given, JointSearch, RecentredSearch
from brainsurgeon.surgery import Surgery
from brainsurgeon.update import Keep

RESULTS = Path(__file__).parent / "results" / "joint.jsonl"
SPARSITIES = {"mlpnet": (0.5, 0.7, 0.8, 0.9, 0.95, 0.98), "resnet20": (0.5, 0.7, 0.8, 0.9)}
SEEDS = {"mlpnet": 3, "resnet20": 2}
METHODS = ("mp+cbs-u", "wf-s+cbs-u", "wide+cbs-u", "cbs-s+cbs-u", "cbs", "joint+cbs-u")
FROM_CBS_S = "joint-from-cbs-s"
"""The joint search from the mask of CBS-S instead of WoodFisher's: does a lower joint cost alone help?"""
KEY = ("network", "num_gradients", "seed", "sparsity", "method")

Line = dict[str, Any]


class Timed:
    """A selection whose seconds are taken."""

    uses_curvature = True

    def __init__(self, selection: Selection, now: Callable[[], float]):
        self.selection, self.now, self.seconds = selection, now, 0.0

    def __call__(self, problem: Problem) -> Tensor:
        """Return the selection's mask."""
        began = self.now()
        pruned = self.selection(problem)
        self.seconds = self.now() - began
        return pruned


class Bench:
    """A network examined once; a mask is chosen once, and weights evaluated before are not evaluated again."""

    def __init__(self, model: nn.Module, data: ImageData, settings: dict[str, Any]):
        self.surgery, self.data = Surgery(model, data.train(), progress=False, **settings), data
        assert self.surgery.quadratic is not None
        self.quadratic = self.surgery.quadratic
        began = self._now()
        _ = self.quadratic.inverse_diagonal
        self.inverse_seconds = self._now() - began
        _ = self.quadratic.self_impact, self.surgery.sample_loss.flops_per_batch()  # what all selections share
        self._chosen: dict[tuple[float, str], tuple[PruningResult, float]] = {}
        self._known: dict[bytes, dict[str, float]] = {}

    def line(self, sparsity: float, method: str) -> Line:
        """Prune by one method and say what came of it."""
        name, _, update = SHORT.get(method, method).partition("+")
        chosen, seconds = self._select(sparsity, name)
        named = Method(method, Given(chosen.masks), UPDATES[update](), RIVALS.get(method, ()))
        result, whole = (self.surgery.prune(sparsity, named, update_scale=scale) for scale in ("auto", 1.0))
        pruned = torch.cat([mask.reshape(-1) for mask in result.masks.values()]).to(self.surgery.device)
        return {
            "selection_cost": self.quadratic.cost(pruned),
            "joint_cost": self.quadratic.cost_of_step(self.quadratic.compensate(pruned)),
            **self._worth(result),
            "whole": self._worth(whole),
            "scale": [event.values["scale"] for event in result.trace if event.stage == "scale"],
            "seconds": round(seconds, 3),
            "pruned": result.pruned,
            "size": result.size,
            "notes": list(result.notes),
        }

    def _select(self, sparsity: float, name: str) -> tuple[PruningResult, float]:
        if (sparsity, name) not in self._chosen:
            selection = JointSearch(start=RecentredSearch()) if name == FROM_CBS_S else SELECTIONS[name]()
            timed = Timed(selection, self._now)
            result = self.surgery.prune(sparsity, (timed, Keep()))
            shared = self.inverse_seconds if name in ("wf-s", "joint") else 0.0
            self._chosen[sparsity, name] = result, timed.seconds + shared
        return self._chosen[sparsity, name]

    def _worth(self, result: PruningResult) -> dict[str, float]:
        values, sample = self.surgery.weights.flatten(result.model), self.surgery.sample_loss
        key = values.cpu().numpy().tobytes()
        if key not in self._known:
            loss = sample.at(values).loss(sample.num_judging)
            self._known[key] = {"sample_loss": loss, "accuracy": accuracy(result.model, self.data)}
        return self._known[key]

    def _now(self) -> float:
        if self.surgery.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self.surgery.device)
        return time.perf_counter()


def read(file: Path) -> list[Line]:
    """Return the finished lines."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def missing(given: argparse.Namespace) -> Iterator[Line]:
    """Compute the lines that are not there yet."""
    finished = {tuple(line[part] for part in KEY) for line in read(given.output)}
    protocol, sparsities = PROTOCOLS[given.network], given.sparsities or SPARSITIES[given.network]
    data, model = load_images(protocol, given.root), load_network(protocol, given.checkpoints).to(given.device)
    for seed in range(SEEDS[given.network]) if given.seeds is None else given.seeds:
        keys = [(given.network, given.gradients, seed, s, method) for s in sparsities for method in given.methods]
        keys = [key for key in keys if key not in finished]
        if not keys:
            continue
        bench = Bench(model, data, {**protocol.settings, "num_gradients": given.gradients, "seed": seed})
        for key in keys:
            made = versions(bench.surgery.device)
            yield {**dict(zip(KEY, key, strict=True)), **bench.line(*key[-2:]), "versions": made}


def main() -> None:
    """Compute what is missing, and say what was computed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=SPARSITIES)
    parser.add_argument("--checkpoints", type=Path, action="append", required=True)
    parser.add_argument("--root", type=Path, help="the folder that holds mnist or cifar10")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gradients", type=int, default=1000, help="K")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--sparsities", type=float, nargs="+")
    parser.add_argument("--methods", nargs="+", default=METHODS, help=f"also: {FROM_CBS_S}+cbs-u")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    for line in missing(given):
        with given.output.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = (*KEY, "selection_cost", "joint_cost", "sample_loss", "accuracy", "whole", "scale", "seconds")
        print(json.dumps({part: line[part] for part in shown}), flush=True)


if __name__ == "__main__":
    main()
