"""Tangents lie below the cost, whatever is decided."""

from __future__ import annotations

import numpy as np
import pytest
from relaxations import COUNT, POINTS, N, make, relaxations

from brainsurgeon.exact.selection_relaxation import rough_selection
from brainsurgeon.exact.tangent import FREE, bounds, root_bound


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


def test_nothing_and_everything_have_one_set() -> None:
    """With no choice left the bound is the cost, and nothing can be flipped."""
    for count in (0, N):
        instance = make(0)
        relaxation = rough_selection(instance.quadratic_form, instance.linear_form, count)
        found = bounds(relaxation, np.full((1, N), FREE, np.int8), np.full((1, N), count / N))
        assert found.point.sum() == count
        assert found.lower[0] == pytest.approx(instance.selection_cost(np.full(N, count > 0)))
        assert np.isinf(found.flip).all()


def test_the_bound_of_the_root_lies_below_every_set_and_can_be_taken_up_again() -> None:
    for relaxation, costs in relaxations(make(1)):
        lower, y, warm = root_bound(relaxation)
        again, _, _ = root_bound(relaxation, warm)
        assert lower <= costs.min() + 1e-9
        assert again <= costs.min() + 1e-9
        assert y.sum() == pytest.approx(COUNT)
