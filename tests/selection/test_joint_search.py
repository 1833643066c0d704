"""The search that sees the update, against the dense joint cost and brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from brainsurgeon.curvature import Fisher, Gram
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.mask import Budget
from brainsurgeon.problem import Problem
from brainsurgeon.quadratic import QuadraticModel
from brainsurgeon.selection import JointSearch, Magnitude, WoodFisher
from toys import make_toy


def problem_of(seed: int, K: int, N: int, count: int, groups: int = 1) -> tuple[Problem, np.ndarray]:
    toy = make_toy(seed, K, N, damping=0.05)
    fisher = Fisher(torch.from_numpy(toy.G.T.copy()), toy.damping)
    w = torch.from_numpy(toy.w)
    parts = tuple(torch.arange(N).tensor_split(groups))
    budget = Budget(parts, tuple(count // groups for _ in parts))
    quadratic = QuadraticModel(w, [slice(0, N)], [fisher])
    return Problem(w, budget, torch.Generator().manual_seed(0), quadratic), reference.fisher(toy.G, toy.damping)


def joint(H: np.ndarray, problem: Problem, pruned: torch.Tensor) -> float:
    return reference.joint_cost(H, problem.weights.numpy(), pruned.nonzero().squeeze(1).tolist())


@given(seed=st.integers(0, 10_000), count=st.integers(1, 9))
def test_the_joint_cost_never_rises_and_counts_are_exact(seed: int, count: int) -> None:
    problem, H = problem_of(seed, 6, 10, count)
    start = WoodFisher()(problem)
    found = JointSearch()(problem)
    problem.budget.check(found)
    assert joint(H, problem, found) <= joint(H, problem, start) * (1 + 1e-9)


def test_it_comes_close_to_brute_force_where_the_start_does_not() -> None:
    """Over many small instances the mean gap to the optimum shrinks several times."""
    gaps = {"start": [], "search": []}
    for seed in range(40):
        problem, H = problem_of(seed, 5, 10, 6)
        best, _ = reference.best_joint(H, problem.weights.numpy(), 6)
        gaps["start"].append(joint(H, problem, Magnitude()(problem)) / best - 1)
        gaps["search"].append(joint(H, problem, JointSearch(start=Magnitude())(problem)) / best - 1)
    assert np.mean(gaps["search"]) < 0.34 * np.mean(gaps["start"])


@pytest.mark.parametrize("shape", [(3, 10), (6, 10), (30, 10)], ids=["K<S", "K~S", "K>S"])
def test_the_gain_of_a_return_and_the_cost_of_a_removal_are_exact(shape: tuple[int, int]) -> None:
    problem, H = problem_of(3, *shape, 5)
    w, quadratic = problem.weights.numpy(), problem.quadratic
    pruned = Magnitude()(problem)
    P = pruned.nonzero().squeeze(1).tolist()
    step = quadratic.compensate(pruned)
    slope, stiffness = quadratic.product(step), quadratic.stiffness(~pruned)
    here = reference.joint_cost(H, w, P)
    for j in P:
        saved = here - reference.joint_cost(H, w, [p for p in P if p != j])
        np.testing.assert_allclose(float(slope[j] ** 2 / (2 * stiffness[j])), saved, rtol=1e-6, atol=1e-10)
    for i in set(range(10)) - set(P):
        added = reference.joint_cost(H, w, [*P, i]) - here
        np.testing.assert_allclose(
            float((quadratic.w[i] + step[i]) ** 2 * stiffness[i] / 2), added, rtol=1e-6, atol=1e-10
        )


def test_groups_keep_their_counts() -> None:
    problem, _ = problem_of(1, 6, 12, 6, groups=3)
    problem.budget.check(JointSearch(start=Magnitude())(problem))


def test_it_works_on_a_gram_matrix() -> None:
    x = torch.randn(2, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moments = torch.cat([x, x + 0.1]) @ torch.cat([x, x + 0.1]).T / 40  # inputs 0 and 2, 1 and 3 nearly alike
    w = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.9, 0.9, 1.1, 1.1], dtype=torch.float64)
    quadratic = QuadraticModel(w, [slice(0, 8)], [Gram(moments.unsqueeze(0), torch.ones(2).double(), 1e-3)])
    budget = Budget((torch.arange(8),), (4,))
    problem = Problem(w, budget, torch.Generator(), quadratic)
    found = JointSearch(start=Magnitude())(problem).view(2, 4)
    assert (found[:, :2] ^ found[:, 2:]).all()  # of two inputs alike one goes, and the other takes its part


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="must not be negative"):
        JointSearch(max_steps=-1)
