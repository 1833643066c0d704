"""The 0-1 quadratic program behind CBS-S."""

from __future__ import annotations

import numpy as np

from brainsurgeon.exact import Instance
from brainsurgeon.exact.incumbent import lowest
from brainsurgeon.exact.quadratic_program import minimise


def test_a_node_limit_leaves_a_true_bound() -> None:
    rng = np.random.default_rng(1)
    instance = Instance.from_gradients(rng.normal(size=(20, 40)), rng.normal(size=40), 1e-3)
    M, c = instance.quadratic_form, instance.linear_form
    start = lowest(np.abs(instance.weights), 20)
    best = minimise(M, c, start, float("inf"))
    few = minimise(M, c, start, float("inf"), max_nodes=100)
    assert (best.status, few.status) == ("optimal", "node limit")
    assert few.lower <= best.objective <= few.objective


def test_a_program_without_curvature_is_a_sort() -> None:
    linear = np.array([3.0, -1.0, 2.0, 0.0])
    outcome = minimise(np.zeros((4, 4)), linear, np.array([True, False, True, False]), float("inf"))
    assert outcome.pruned.tolist() == [False, True, False, True]
    assert outcome.objective == outcome.lower == -1.0
