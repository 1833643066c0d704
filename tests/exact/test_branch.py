"""The branch and bound finds the best set, and the figures asked for are met."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from relaxations import POINTS, N, make, relaxations

from brainsurgeon.exact import Instance, solve
from brainsurgeon.exact.branch import branch_and_bound
from brainsurgeon.exact.incumbent import lowest
from brainsurgeon.exact.selection_relaxation import rough_selection
from brainsurgeon.exact.tangent import FREE, Relaxation


def test_no_time_at_all_still_bounds_the_root() -> None:
    relaxation, costs = relaxations(make(3))[0]
    outcome = branch_and_bound(relaxation, POINTS[5], time.perf_counter() - 1)
    assert outcome.status == "time limit"
    assert outcome.nodes == 1
    assert outcome.objective <= costs[5] + 1e-12
    assert -np.inf < outcome.lower <= costs.min()


def test_cbs_s_of_60_weights_and_16_gradients_is_proven_within_a_minute() -> None:
    rng = np.random.default_rng(0)
    instance = Instance.from_gradients(rng.normal(size=(16, 60)), rng.normal(size=60), 1e-3)
    found = solve(instance, 30, "branch-and-bound-s", 60.0)
    assert found.status == "optimal"
    assert found.gap == 0


@pytest.mark.parametrize("N", [30, 40])
def test_full_cbs_of_30_weights_and_more_is_proven_within_a_minute(N: int) -> None:
    rng = np.random.default_rng(N)
    instance = Instance.from_gradients(rng.normal(size=(60, N)), rng.normal(size=N), 1e-3)
    assert solve(instance, N // 2, "branch-and-bound", 60.0).status == "optimal"


WORST = {"last": lambda costs: int(costs.argmax()), "second worst": lambda costs: int(costs.argsort()[-2])}


@pytest.mark.parametrize("start", WORST)
@pytest.mark.parametrize("seed", range(12))
def test_from_the_worst_start_the_best_set_is_found_whatever_the_split(seed: int, start: str) -> None:
    """What is decided at once, and what is dropped, never holds the best set: by enumeration of all sets."""
    for relaxation, costs in relaxations(make(seed, K=3 + seed % 6)):
        outcome = branch_and_bound(relaxation, POINTS[WORST[start](costs)], np.inf)
        assert outcome.status == "optimal"
        scale = float(np.ptp(costs))
        assert costs[(outcome.pruned == POINTS).all(1)][0] <= costs.min() + 1e-7 * scale
        assert outcome.objective == pytest.approx(costs.min(), abs=1e-7 * scale)
        assert outcome.lower <= costs.min() + 1e-7 * scale


class Central:
    """A relaxation that is never minimised: the tangents are taken at the centre of each node, and its points are poor.

    So the incumbent stays bad for long, and a bound that claims too much cuts the best set off.
    """

    def __init__(self, inner: Relaxation):
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def relax(self, state: np.ndarray, warm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        free = state == FREE
        left = self._inner.count - (state == 1).sum(1, keepdims=True)
        return np.where(free, left / np.maximum(free.sum(1, keepdims=True), 1), state).astype(float), warm


@pytest.mark.parametrize("K", [3, 6, 12])
@pytest.mark.parametrize("seed", range(12))
def test_with_the_roughest_tangents_and_the_worst_start_the_best_set_is_found(seed: int, K: int) -> None:
    rng = np.random.default_rng([seed, K])
    for damping in (1e-3, 2e-2):
        instance = Instance.from_gradients(rng.normal(size=(K, N)), rng.normal(size=N), damping)
        for relaxation, costs in relaxations(instance):
            outcome = branch_and_bound(Central(relaxation), POINTS[costs.argmax()], np.inf)
            assert outcome.status == "optimal"
            assert outcome.objective == pytest.approx(costs.min(), abs=1e-7 * float(np.ptp(costs)))


@pytest.mark.parametrize("seed", range(6))
def test_bounds_only_rise_as_nodes_are_opened(seed: int) -> None:
    """A child's bound is never below its parent's, though its own tangents may be rougher."""
    rng = np.random.default_rng(seed)
    instance = Instance.from_gradients(rng.normal(size=(12, 24)), rng.normal(size=24), 1e-3)
    start = lowest(-np.abs(instance.weights), 12)
    relaxation = rough_selection(instance.quadratic_form, instance.linear_form, 12)
    lowers = [branch_and_bound(relaxation, start, np.inf, max_nodes=most).lower for most in (1, 2, 4, 8, 16, 64, 256)]
    assert all(after >= before - 1e-12 for before, after in pairwise(lowers))
