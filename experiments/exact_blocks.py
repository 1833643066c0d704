"""Sub-blocks of real networks: how far each heuristic is from the proven optimum."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Fisher
from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.selection import LocalSearch, Magnitude, Randomized, WideSearch, WoodFisher
from brainsurgeon.exact import Instance, solve
from brainsurgeon.exact.polish import Polish
from brainsurgeon.exact.relaxed import Relaxed
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.pruning.surgery import Surgery
from experiments.networks import curvature_of, prepare
from experiments.records import Record

FINE = 1e-9
GRADIENTS = 1000
Search = Callable[[Selection], Selection]
"""From a start to a search."""
Gaps = Callable[[QuadraticModel, int, float], Record]


class CostJudge:
    """A judge by the CBS-S cost itself: what is compared here is how well that cost is minimised."""

    def __init__(self, quadratic: QuadraticModel):
        self.quadratic = quadratic

    def best_masks(self, masks: Sequence[Tensor], count: int = 1) -> list[int]:
        """Return the numbers of the cheapest masks."""
        costs = self.quadratic.costs(masks)
        return sorted(range(len(masks)), key=lambda k: costs[k])[:count]

    def is_better(self, new: Tensor, old: Tensor) -> bool:
        """Say which of two masks is cheaper."""
        return self.quadratic.cost(new) < self.quadratic.cost(old)


def problem_of(quadratic: QuadraticModel, count: int, seed: int = 0) -> Problem:
    """Return the problem of pruning so many of a model's weights."""
    budget = Budget((torch.arange(quadratic.size),), (count,))
    judge: Any = CostJudge(quadratic)  # no search here asks it for gradients
    return Problem(quadratic.weights, budget, torch.Generator().manual_seed(seed), quadratic, judge)


def restarted(search: Search, problem: Problem, seconds: float) -> Tensor:
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


def local_search(least: float) -> Search:
    """Return Algorithm 1 without an end but its own."""
    return lambda start: LocalSearch(start, min_improvement=least, max_steps=1000, patience=1000)


def wide_search(least: float) -> Search:
    """Return the wide search without an end but its own."""
    return lambda start: WideSearch(start, starts=1, min_improvement=least, max_steps=1000, patience=1000)


def surgeries(options: argparse.Namespace) -> Iterator[tuple[str, Surgery, ImageData]]:
    """Yield the networks that are asked for."""
    for name in options.network:
        yield name, *prepare(name, options.checkpoints, num_gradients=GRADIENTS)


def sub_blocks(surgery: Surgery, size: int, wanted: int) -> list[QuadraticModel]:
    """Cut blocks of neighbouring weights out of random layers; blocks with dead weights are passed over."""
    rng = np.random.default_rng(0)
    columns = torch.cat([c.columns for c in curvature_of(surgery).curvatures if isinstance(c, Fisher)])
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
        found.append(QuadraticModel(weights, [slice(0, size)], [Fisher(part, surgery.settings["damping"])]))
    return found


def polish_gaps(quadratic: QuadraticModel, count: int, seconds: float) -> Record:
    """Compare the polish and the wide search at equal time with the optimum of CBS-S."""
    problem = problem_of(quadratic, count)
    best = solve(quadratic, count, "branch-and-bound-s", 60.0)
    masks = {
        "polish": Polish(Relaxed(10.0), neighbourhood=40, seconds=seconds)(problem),
        "wide, same time": restarted(wide_search(FINE * best.objective), problem, seconds),
    }
    excess = {name: quadratic.cost(mask) / best.objective - 1 for name, mask in masks.items()}
    return {"selection": {"optimum": best.objective, "status": best.status}, "selection excess": excess}


def gaps_of(quadratic: QuadraticModel, count: int, seconds: float) -> Record:
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


def instances(options: argparse.Namespace, gaps: Gaps = gaps_of) -> Record:
    """Compare the heuristics on sub-blocks of every network."""
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


def polished(options: argparse.Namespace) -> Record:
    """Compare the polish and the wide search with more time."""
    return instances(options, polish_gaps)


def _spread(values: list[float]) -> dict[str, float]:
    met = sum(value < 1e-6 for value in values) / len(values)
    return {"mean": statistics.mean(values), "median": statistics.median(values), "max": max(values), "optimal": met}
