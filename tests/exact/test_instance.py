"""A small pruning problem, dense: its costs, and what it is made of."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from instances import make
from toys import make_toy

from brainsurgeon.exact import solve


def test_the_costs_are_those_of_the_paper() -> None:
    """The instance's two costs are equation 6 and the joint cost, as written in the reference."""
    instance = make(3, 9, 5)
    P = [0, 3, 4, 8]
    pruned = np.isin(np.arange(9), P)
    H, w = instance.hessian, instance.weights
    assert instance.selection_cost(pruned) == pytest.approx(reference.selection_cost(H, w, P))
    assert instance.joint_cost(pruned) == pytest.approx(reference.joint_cost(H, w, P))
    np.testing.assert_allclose(instance.update(pruned), reference.obs_step(H, w, P))
    factor, damping = instance.factor
    np.testing.assert_allclose(factor.T @ factor + damping * np.eye(9), instance.hessian)
    assert len(factor) == 5


def test_a_problem_and_its_quadratic_model_are_taken_as_they_are() -> None:
    toy = make_toy(7, 6, 10, blocks=[slice(0, 4), slice(4, 10)])
    H = reference.block_diagonal(reference.fisher(toy.G, toy.damping), toy.blocks)
    best, P = reference.best_joint(H, toy.w, 5)
    for problem in (toy.problem(5), toy.quadratic()):
        found = solve(problem, 5)
        assert found.objective == pytest.approx(best)
        assert tuple(found.pruned.nonzero().squeeze(1).tolist()) == P
