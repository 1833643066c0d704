"""The parts of the branch and bound: splits stay convex, tangents stay below, and the figures asked for are met."""

from __future__ import annotations

import time
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toys import make_toy

from brainsurgeon.exact import Instance, solve
from brainsurgeon.exact.branch import branch_and_bound
from brainsurgeon.exact.incumbent import lowest, swap_descent
from brainsurgeon.exact.joint_relaxation import rough_joint, share_out, tight_joint
from brainsurgeon.exact.quadratic_program import minimise
from brainsurgeon.exact.selection_relaxation import rough_selection, tight_selection
from brainsurgeon.exact.tangent import FREE, Relaxation, bounds, root_bound

N, COUNT = 9, 4
POINTS = np.array([np.isin(np.arange(N), P) for P in combinations(range(N), COUNT)])


def make(seed: int, K: int = 6) -> Instance:
    toy = make_toy(seed, K, N)
    return Instance.from_gradients(toy.G, toy.w, 0.02, 0.1 * np.random.default_rng(seed).normal(size=N))


def relaxations(instance: Instance) -> list[tuple[Relaxation, np.ndarray]]:
    """Both costs, with a weak and with the best split, and the true cost of every set."""
    M, c = instance.quadratic_form, instance.linear_form
    selection = np.array([instance.selection_cost(P) for P in POINTS])
    joint = np.array([instance.joint_cost(P) for P in POINTS])
    return [
        (rough_selection(M, c, COUNT), selection),
        (tight_selection(M, c, COUNT, float(np.ptp(selection))), selection),
        (rough_joint(instance, COUNT), joint),
        (tight_joint(instance, COUNT, float(joint.min() - instance.floor)), joint),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_relaxation_agrees_with_the_cost_at_every_set_and_lies_below_it_in_bounds(seed: int) -> None:
    """At random fractional points, and in nodes where some weights are decided."""
    rng = np.random.default_rng(seed)
    for relaxation, costs in relaxations(make(seed)):
        np.testing.assert_allclose(relaxation.tangent(POINTS.astype(float))[0], costs, rtol=1e-8, atol=1e-12)
        y = rng.dirichlet(np.ones(N), size=5) * COUNT
        y = np.clip(y, 0, 1)
        y += (COUNT - y.sum(1, keepdims=True)) / N  # on the plane Σy = n, where convexity is promised
        if y.min() < 0 or y.max() > 1:
            y = np.full((5, N), COUNT / N)
        state = np.full((5, N), FREE, np.int8)
        state[1, 0], state[2, 3] = 1, 0
        found = bounds(relaxation, state, y)
        for row in range(5):
            allowed = np.all((state[row] == FREE) | (state[row] == POINTS), axis=1)
            assert found.lower[row] <= costs[allowed].min() + 1e-9
            assert found.point[row].sum() == COUNT
            for i in np.flatnonzero(state[row] == FREE):
                other = allowed & (POINTS[:, i] != found.point[row, i])
                assert found.lower[row] + found.flip[row, i] <= costs[other].min() + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_the_best_split_is_convex_and_tighter(seed: int) -> None:
    instance = make(seed)
    M = instance.quadratic_form
    weak, strong, weak_joint, strong_joint = (relaxation for relaxation, _ in relaxations(instance))
    plane = np.linalg.svd(np.ones((1, N)))[2][1:].T  # a basis of Σy = 0
    rest = plane.T @ (M - np.diag(strong.shift)) @ plane  # type: ignore[attr-defined]
    assert np.linalg.eigvalsh(rest)[0] >= -1e-9 * np.diag(M).max()
    assert np.linalg.eigvalsh(instance.hessian - np.diag(strong_joint.shift))[0] > 0  # type: ignore[attr-defined]
    assert (strong_joint.shift > 0).all()  # type: ignore[attr-defined]
    assert root_bound(strong)[0] >= root_bound(weak)[0] - 1e-9
    assert root_bound(strong_joint)[0] > root_bound(weak_joint)[0]


@given(
    pull=hnp.arrays(np.float64, (3, 6), elements=st.floats(1e-6, 10)),
    total=hnp.arrays(np.float64, 3, elements=st.floats(0.1, 5.9)),
)
@settings(max_examples=60, deadline=None)
def test_shares_add_up_and_follow_the_pull(pull: np.ndarray, total: np.ndarray) -> None:
    shares = share_out(pull, total)
    np.testing.assert_allclose(shares.sum(1), total, rtol=1e-9)
    assert shares.max() <= 1
    for row in range(3):
        below = shares[row] < 1 - 1e-12
        ratio = shares[row][below] / pull[row][below]
        assert np.ptp(ratio) <= 1e-9 * ratio.max() if ratio.size else True


def test_swaps_only_improve_and_keep_the_count() -> None:
    for relaxation, costs in relaxations(make(2)):
        for start in POINTS[::17]:
            found, cost = swap_descent(relaxation, start)
            assert found.sum() == COUNT
            assert cost <= costs[(start == POINTS).all(1)][0] + 1e-12
            assert cost == pytest.approx(costs[(found == POINTS).all(1)][0], abs=1e-9)


def test_a_node_limit_leaves_a_true_bound() -> None:
    rng = np.random.default_rng(1)
    instance = Instance.from_gradients(rng.normal(size=(20, 40)), rng.normal(size=40), 1e-3)
    M, c = instance.quadratic_form, instance.linear_form
    start = lowest(np.abs(instance.weights), 20)
    best = minimise(M, c, start, float("inf"))
    few = minimise(M, c, start, float("inf"), max_nodes=100)
    assert (best.status, few.status) == ("optimal", "node limit")
    assert few.lower <= best.objective <= few.objective


def test_no_time_at_all_still_bounds_the_root() -> None:
    relaxation, costs = relaxations(make(3))[0]
    outcome = branch_and_bound(relaxation, POINTS[5], time.perf_counter() - 1)
    assert outcome.status == "time limit"
    assert outcome.nodes == 1
    assert outcome.objective <= costs[5] + 1e-12
    assert -np.inf < outcome.lower <= costs.min()


def test_a_program_without_curvature_is_a_sort() -> None:
    linear = np.array([3.0, -1.0, 2.0, 0.0])
    outcome = minimise(np.zeros((4, 4)), linear, np.array([True, False, True, False]), float("inf"))
    assert outcome.pruned.tolist() == [False, True, False, True]
    assert outcome.objective == outcome.lower == -1.0


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
