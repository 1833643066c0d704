"""Small instances, their optima by enumeration, and what an answer must meet."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from toys import make_toy

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.exact import FORMULATIONS, Certified, Instance, solve

SOLVERS = {name: "pyscipopt" for name in ("cbs", "cbs-s", "cbs-s-dense")} | {
    name: "highspy" for name in ("cbs-s-linear", "benders", "cbs-u")
}
OPTIMISERS = [name for name in FORMULATIONS if name != "cbs-u"]


def needs(formulation: str) -> None:
    """Skip where the solver is not installed."""
    if formulation in SOLVERS:
        pytest.importorskip(SOLVERS[formulation], reason="a solver of the extra `exact`")


def make(seed: int, N: int, K: int, damping: float = 0.05, slope: float = 0.0) -> Instance:
    """A toy as an instance, with a first-order term or without."""
    toy = make_toy(seed, K, N)
    a = slope * np.random.default_rng(seed).normal(size=N)
    return Instance.from_gradients(toy.G, toy.w, damping, a)


def enumerate_best(instance: Instance, count: int, cost: str) -> float:
    """The least cost of all sets of so many weights."""
    function = instance.selection_cost if cost == "selection" else instance.joint_cost
    sets = (np.isin(np.arange(instance.size), P) for P in combinations(range(instance.size), count))
    return min(function(pruned) for pruned in sets)


@st.composite
def instances(draw: st.DrawFn, largest: int) -> tuple[Instance, int]:
    """An instance of any kind, and a count."""
    N = draw(st.integers(1, largest))
    count = draw(st.integers(0, N))
    seed, K = draw(st.integers(0, 10**6)), draw(st.integers(1, 20))
    damping = draw(st.sampled_from([1e-4, 1e-2, 1.0]))
    return make(seed, N, K, damping, draw(st.sampled_from([0.0, 0.2]))), count


def check(found: Certified, instance: Instance, count: int, best: float) -> None:
    """The count, the cost, the bound and the step are all true."""
    scale = max(abs(best), abs(best - instance.floor), 1e-9)
    assert int(found.pruned.sum()) == count
    assert found.status == "optimal"
    assert found.objective == pytest.approx(best, abs=3e-6 * scale)
    assert found.lower_bound <= best + 1e-6 * scale
    assert found.objective - found.lower_bound <= 1e-5 * scale
    assert instance.step_cost(found.delta.numpy()) == pytest.approx(found.objective, abs=1e-9 * scale + 1e-12)
    assert torch.equal(found.delta[found.pruned], -torch.from_numpy(instance.weights)[found.pruned])


def finds_what_enumeration_finds(formulation: str, data: st.DataObject) -> None:
    """Solve an instance of up to eight weights by a program of the paper."""
    needs(formulation)
    instance, count = data.draw(instances(8))
    best = enumerate_best(instance, count, FORMULATIONS[formulation].cost)
    check(solve(instance, count, formulation), instance, count, best)


def lowest(quadratic: QuadraticModel, budget: Budget) -> torch.Tensor:
    """The smallest weights."""
    return budget.lowest(quadratic.weights.abs())
