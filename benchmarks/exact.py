"""How far from optimal prunings are, and how fast that can be proven.

    python benchmarks/exact.py formulations            # each formulation, random instances of growing size
    python benchmarks/exact.py largest CHECKPOINTS     # the largest real sub-block solved in a minute
    python benchmarks/exact.py instances CHECKPOINTS   # 60 sub-blocks of MLPNet and ResNet20: every heuristic's gap
    python benchmarks/exact.py polished CHECKPOINTS    # the same: the polish and the wide search with more time
    python benchmarks/exact.py networks CHECKPOINTS    # whole networks: costs at equal time, certificates, accuracy

Each writes experiments/results/exact-NAME.json, with the command and the machine. One thread: OMP_NUM_THREADS=1.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Fisher
from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.selection import (
    Given,
    LocalSearch,
    Magnitude,
    Polish,
    Randomized,
    Relaxed,
    WideSearch,
    WoodFisher,
)
from brainsurgeon.exact import Instance, certify, solve
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.surgery import Surgery

RESULTS = Path(__file__).parent.parent / "experiments" / "results"
FINE = 1e-9
GRADIENTS = 1000


class CostJudge:
    """A judge by the CBS-S cost itself: what is compared here is how well that cost is minimised."""

    def __init__(self, quadratic: QuadraticModel):
        self.quadratic = quadratic

    def best_masks(self, masks: Sequence[Tensor], count: int = 1) -> list[int]:
        costs = self.quadratic.costs(masks)
        return sorted(range(len(masks)), key=lambda k: costs[k])[:count]

    def is_better(self, new: Tensor, old: Tensor) -> bool:
        return self.quadratic.cost(new) < self.quadratic.cost(old)


def problem_of(quadratic: QuadraticModel, count: int, seed: int = 0) -> Problem:
    every = torch.arange(quadratic.size)
    generator = torch.Generator().manual_seed(seed)
    return Problem(quadratic.weights, Budget((every,), (count,)), generator, quadratic, CostJudge(quadratic))  # type: ignore[arg-type]


def restarted(search: Callable[[Any], Any], problem: Problem, seconds: float) -> Tensor:
    """Run a search from new randomised starts until the time is over; return the cheapest mask."""
    deadline, best, number = time.perf_counter() + seconds, None, 0
    while best is None or time.perf_counter() < deadline:
        fresh = replace(problem, generator=torch.Generator().manual_seed(number))
        draws = 50 if number == 0 else 2  # the first start is the published one, the others single random draws
        found = search(Randomized(num_draws=draws, screen=False))(fresh)
        if best is None or problem.quadratic.cost(found) < problem.quadratic.cost(best):
            best = found
        number += 1
    return best


def local_search(least: float) -> Callable[[Any], Any]:
    return lambda start: LocalSearch(start, min_improvement=least, max_steps=1000, patience=1000)


def wide_search(least: float) -> Callable[[Any], Any]:
    return lambda start: WideSearch(start, starts=1, min_improvement=least, max_steps=1000, patience=1000)


# ---- Sub-blocks of real networks


def surgeries(options: argparse.Namespace) -> Iterator[tuple[str, Surgery, Any]]:
    for name in options.network:
        protocol = PROTOCOLS[name]
        model, data = load_network(protocol, [options.checkpoints]), load_images(protocol)
        settings = {**protocol.settings, "num_gradients": GRADIENTS}
        yield name, Surgery(model, data.train(), progress=False, **settings), data


def sub_blocks(surgery: Surgery, size: int, wanted: int) -> list[QuadraticModel]:
    """Cut blocks of neighbouring weights out of random layers; blocks with dead weights are passed over."""
    assert surgery.quadratic is not None
    rng = np.random.default_rng(0)
    columns = torch.cat([c.columns for c in surgery.quadratic.curvatures if isinstance(c, Fisher)])
    found: list[QuadraticModel] = []
    while len(found) < wanted:
        layer = surgery.weights.layers[rng.integers(len(surgery.weights.layers))]
        if layer.size < size:
            continue
        start = layer.offset + int(rng.integers(layer.size - size + 1))
        part = columns[start : start + size].double()
        if bool((part.abs().sum(1) == 0).any()):
            continue
        weights = surgery.values[start : start + size].double()
        found.append(QuadraticModel(weights, [slice(0, size)], [Fisher(part, surgery.settings.damping)]))
    return found


def polish_gaps(quadratic: QuadraticModel, count: int, seconds: float) -> dict[str, Any]:
    """Compare the polish and the wide search at equal time with the optimum of CBS-S."""
    problem = problem_of(quadratic, count)
    best = solve(quadratic, count, "branch-and-bound-s", 60.0)
    masks = {
        "polish": Polish(Relaxed(10.0), neighbourhood=40, seconds=seconds)(problem),
        "wide, same time": restarted(wide_search(FINE * best.objective), problem, seconds),
    }
    excess = {name: quadratic.cost(mask) / best.objective - 1 for name, mask in masks.items()}
    return {"selection": {"optimum": best.objective, "status": best.status}, "selection excess": excess}


def polished(options: argparse.Namespace) -> dict[str, Any]:
    return instances(options, polish_gaps)


def gaps_of(quadratic: QuadraticModel, count: int, seconds: float) -> dict[str, Any]:
    """Compare every heuristic with the optimum of CBS-S, and their masks after the best update with that of CBS."""
    problem = problem_of(quadratic, count)
    instance = Instance.from_quadratic(quadratic)
    best, joint = solve(instance, count, "branch-and-bound-s", 60.0), solve(instance, count, "branch-and-bound", 30.0)
    least = FINE * best.objective
    draws = Randomized(screen=False)
    masks = {
        "mp": Magnitude()(problem),
        "wf-s": WoodFisher()(problem),
        "rmp": draws(problem),
        "algorithm1": local_search(least)(draws)(problem_of(quadratic, count)),
        "wide": wide_search(least)(draws)(problem_of(quadratic, count)),
        "relaxed": Relaxed(10.0)(problem),
        "polish": Polish(Relaxed(10.0), neighbourhood=40, seconds=seconds)(problem),
        "algorithm1, same time": restarted(local_search(least), problem, seconds),
        "wide, same time": restarted(wide_search(least), problem, seconds),
        "CBS-S optimum": best.pruned,
    }
    arrays = {name: mask.numpy() for name, mask in masks.items()}
    return {
        "selection": {"optimum": best.objective, "status": best.status, "gap": best.gap, "seconds": best.seconds},
        "joint": {"optimum": joint.objective, "status": joint.status, "gap": joint.gap, "seconds": joint.seconds},
        "selection excess": {k: instance.selection_cost(m) / best.objective - 1 for k, m in arrays.items()},
        "joint excess": {k: instance.joint_cost(m) / joint.objective - 1 for k, m in arrays.items()},
    }


def instances(
    options: argparse.Namespace, gaps: Callable[[QuadraticModel, int, float], dict[str, Any]] = gaps_of
) -> dict[str, Any]:
    rows = []
    for network, surgery, _ in surgeries(options):
        for number, quadratic in enumerate(sub_blocks(surgery, options.size, options.count)):
            sparsity = (0.5, 0.8)[number % 2]
            row = gaps(quadratic, round(sparsity * options.size), options.seconds)
            rows.append({"network": network, "block": number, "sparsity": sparsity, **row})
            print(network, number, sparsity, row["selection"]["status"], flush=True)
    summary = {}
    for kind in ("selection excess", "joint excess"):
        for key in ("all", "mlpnet", "resnet20"):
            chosen = [row for row in rows if key in ("all", row["network"])]
            if chosen and kind in chosen[0]:
                summary[f"{kind}, {key}"] = {k: _spread([row[kind][k] for row in chosen]) for k in chosen[0][kind]}
    return {"size": options.size, "seconds": options.seconds, "summary": summary, "rows": rows}


def _spread(values: list[float]) -> dict[str, float]:
    met = sum(value < 1e-6 for value in values) / len(values)
    return {"mean": statistics.mean(values), "median": statistics.median(values), "max": max(values), "optimal": met}


# ---- Speed of proof


def formulations(options: argparse.Namespace) -> dict[str, Any]:
    """Solve random instances with K = 16, half of the weights pruned; a formulation stops growing when it fails."""
    joint = ("branch-and-bound", "benders", "cbs")
    selection = ("branch-and-bound-s", "cbs-s", "cbs-s-dense", "cbs-s-linear")
    rows = []
    for formulation in (*joint, *selection):
        for size in (10, 20, 30, 40, 60, 80, 100):
            rng = np.random.default_rng(size)
            G, w = rng.normal(size=(16, size)), rng.normal(size=size)
            found = solve(Instance.from_gradients(G, w, 1e-3), size // 2, formulation, 60.0)
            rows.append(
                {
                    "formulation": formulation,
                    "N": size,
                    "status": found.status,
                    "gap": found.gap,
                    "seconds": found.seconds,
                    "nodes": found.nodes,
                    "objective": found.objective,
                }
            )
            print(found.summary(), flush=True)
            if found.status != "optimal":
                break
    return {"K": 16, "damping": 1e-3, "time_limit": 60.0, "rows": rows}


def largest(options: argparse.Namespace) -> dict[str, Any]:
    """Solve ever larger sub-blocks, one of each size; a series ends where a minute is not enough."""
    rows = []
    for network, surgery, _ in surgeries(options):
        blocks = {size: sub_blocks(surgery, size, 1)[0] for size in (40, 64, 100, 150, 200, 300)}
        for sparsity in (0.5, 0.8):
            for formulation in ("branch-and-bound", "branch-and-bound-s"):
                for size, quadratic in blocks.items():
                    found = solve(quadratic, round(sparsity * size), formulation, 60.0)
                    rows.append(
                        {
                            "network": network,
                            "N": size,
                            "sparsity": sparsity,
                            "formulation": formulation,
                            "status": found.status,
                            "gap": found.gap,
                            "seconds": found.seconds,
                            "nodes": found.nodes,
                        }
                    )
                    print(network, sparsity, found.summary(), flush=True)
                    if found.status != "optimal":
                        break
    return {"time_limit": 60.0, "rows": rows}


# ---- Whole networks


def networks(options: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for network, surgery, data in surgeries(options):
        quadratic = surgery.quadratic
        assert quadratic is not None
        for sparsity in (0.7,) if network == "resnet20" else (0.5, 0.9, 0.98):
            problem = problem_of(quadratic, -(-round(sparsity * 1000) * quadratic.size // 1000))
            masks = _timed_masks(problem, options.seconds)
            proof = certify(quadratic, problem.budget, masks["polish"][0], 60.0)
            for name, (mask, seconds) in masks.items():
                model = surgery.prune(sparsity, (Given({"mask": mask}), _keep())).model
                rows.append(
                    {
                        "network": network,
                        "sparsity": sparsity,
                        "method": name,
                        "cost": quadratic.cost(mask),
                        "seconds": seconds,
                        "lower": proof.lower_bound,
                        "gap": 1 - proof.lower_bound / quadratic.cost(mask),
                        "accuracy": accuracy(model, data),
                        "bounds": proof.bounds,
                        "certificate": proof.status,
                        "certificate seconds": proof.seconds,
                    }
                )
                print({k: v for k, v in rows[-1].items() if k != "bounds"}, flush=True)
    return {"gradients": GRADIENTS, "seconds": options.seconds, "rows": rows}


def _keep() -> Any:
    from brainsurgeon.engine.update import Keep

    return Keep()


def _timed_masks(problem: Problem, seconds: float) -> dict[str, tuple[Tensor, float]]:
    draws = Randomized(screen=False)
    start = draws(problem)
    least = FINE * problem.quadratic.cost(start)

    def polish(first: Any) -> Any:
        return lambda: Polish(first, seconds=seconds)(problem)

    ways: dict[str, Callable[[], Tensor]] = {
        "mp": lambda: Magnitude()(problem),
        "rmp": lambda: start,
        "algorithm1": lambda: restarted(local_search(least), problem, seconds),
        "wide": lambda: restarted(wide_search(least), problem, seconds),
        "polish from rmp": polish(Given({"mask": start})),
        "relaxed": lambda: Relaxed()(problem),
        "polish": polish(Relaxed()),
    }
    masks = {}
    for name, way in ways.items():
        began = time.perf_counter()
        masks[name] = (way(), time.perf_counter() - began)
    return masks


COMMANDS = {
    "formulations": formulations,
    "largest": largest,
    "instances": instances,
    "polished": polished,
    "networks": networks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("checkpoints", type=Path, nargs="?", default=Path("checkpoints"))
    parser.add_argument("--size", type=int, default=64, help="weights of a sub-block")
    parser.add_argument("--count", type=int, default=30, help="sub-blocks of each network")
    parser.add_argument("--network", nargs="+", default=["mlpnet", "resnet20"])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each search")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    found = COMMANDS[options.what](options)
    record = {
        "command": " ".join(["python benchmarks/exact.py", *(part for part in sys.argv[1:] if "/" not in part)]),
        "machine": f"{platform.machine()}, one thread, Python {platform.python_version()}, torch {torch.__version__}",
        "seconds in all": time.perf_counter() - began,
        **found,
    }
    path = RESULTS / f"exact-{options.what}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
