"""Whole networks: what searches of the CBS-S cost reach in equal time, and how much more could be saved at most.

The bounded cost is ½‖Σ_P s_i‖² + ½λΣ_P w_i², and no choice of P cancels anything of the second part, the damping's. Its
share is recorded with each mask.
"""

import argparse
import time
from collections.abc import Callable

from torch import Tensor

from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.selection import Given, Magnitude, Randomized
from brainsurgeon.engine.update import Keep
from brainsurgeon.exact import certify
from brainsurgeon.exact.polish import Polish
from brainsurgeon.exact.relaxed import Relaxed
from brainsurgeon.paper.accuracy import accuracy
from experiments.exact_blocks import FINE, GRADIENTS, local_search, problem_of, restarted, surgeries, wide_search
from experiments.networks import curvature_of
from experiments.records import Record


def networks(options: argparse.Namespace) -> Record:
    """Search every network, certify the best mask, and test all of them."""
    rows = []
    for network, surgery, data in surgeries(options):
        quadratic, damping = curvature_of(surgery), surgery.settings["damping"]
        for sparsity in (0.7,) if network == "resnet20" else (0.5, 0.9, 0.98):
            problem = problem_of(quadratic, -(-round(sparsity * 1000) * quadratic.size // 1000))
            masks = timed_masks(problem, options.seconds)
            proof = certify(quadratic, problem.budget, masks["polish"][0], 60.0)
            for name, (mask, seconds) in masks.items():
                model = surgery.prune(sparsity, (Given(surgery.weights.unflatten(mask)), Keep())).model
                cost = quadratic.cost(mask)
                row = {
                    "network": network,
                    "sparsity": sparsity,
                    "method": name,
                    "cost": cost,
                    "damping share": damping / 2 * float(quadratic.removed(mask).square().sum()) / cost,
                    "seconds": seconds,
                    "lower": proof.lower_bound,
                    "gap": 1 - proof.lower_bound / cost,
                    "accuracy": accuracy(model, data),
                    "bounds": proof.bounds,
                    "certificate": proof.status,
                    "certificate seconds": proof.seconds,
                }
                rows.append(row)
                print({k: v for k, v in row.items() if k != "bounds"}, flush=True)
    return {"gradients": GRADIENTS, "seconds": options.seconds, "rows": rows}


def timed_masks(problem: Problem, seconds: float) -> dict[str, tuple[Tensor, float]]:
    """Return the mask of each search, and how long it took."""
    draws = Randomized(screen=False)
    start = draws(problem)
    least = FINE * problem.quadratic.cost(start)

    def polish(first: Selection) -> Callable[[], Tensor]:
        return lambda: Polish(first, seconds=seconds)(problem)

    ways: dict[str, Callable[[], Tensor]] = {
        "mp": lambda: Magnitude()(problem),
        "rmp": lambda: start,
        "algorithm1": lambda: restarted(local_search(least), problem, seconds),
        "wide": lambda: restarted(wide_search(least), problem, seconds),
        "polish from rmp": polish(lambda _: start),
        "relaxed": lambda: Relaxed()(problem),
        "polish": polish(Relaxed()),
    }
    masks = {}
    for name, way in ways.items():
        began = time.perf_counter()
        masks[name] = (way(), time.perf_counter() - began)
    return masks
