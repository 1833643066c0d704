"""CBS-S relaxed: right at sets, convex between them, and minimised where it says so."""

import numpy as np
import pytest
from relaxations import COUNT, POINTS, N, make

from brainsurgeon.exact.selection_relaxation import SelectionRelaxation, rough_selection, tight_selection
from brainsurgeon.exact.tangent import FREE


def both(seed: int) -> list[SelectionRelaxation]:
    instance = make(seed)
    M, c = instance.quadratic_form, instance.linear_form
    return [rough_selection(M, c, COUNT), tight_selection(M, c, COUNT, float(np.diag(M).sum()))]


def test_gradients_are_those_of_the_values() -> None:
    y = np.random.default_rng(0).uniform(size=(1, N))
    for relaxation in both(0):
        _, gradients = relaxation.tangent(y)
        for i in range(N):
            step = np.zeros((1, N))
            step[0, i] = 1e-5
            slope = (relaxation.tangent(y + step)[0] - relaxation.tangent(y - step)[0]) / 2e-5
            assert gradients[0, i] == pytest.approx(float(slope[0]), abs=1e-8)


def test_relaxed_points_meet_the_count_and_what_is_decided() -> None:
    """A node with one weight pruned and one kept; more iterations come nearer to the minimum."""
    state = np.full((1, N), FREE, np.int8)
    state[0, 2], state[0, 5] = 1, 0
    for relaxation in both(1):
        long = SelectionRelaxation(relaxation.matrix, relaxation.linear, COUNT, relaxation.shift, 5000)
        y, _ = long.relax(state, long.cold()[None])
        assert y.sum() == pytest.approx(COUNT)
        assert y[0, 2] == pytest.approx(1, abs=1e-4)
        assert y[0, 5] == pytest.approx(0, abs=1e-4)
        allowed = POINTS[(POINTS[:, 2]) & (~POINTS[:, 5])].astype(float)
        assert float(long.tangent(y)[0][0]) <= long.tangent(allowed)[0].min() + 1e-6


def test_the_shift_costs_nothing_at_sets_and_its_share_between() -> None:
    """½Σu_i(y_i − y_i²) more than without a split."""
    rough, tight = both(2)
    np.testing.assert_allclose(rough.tangent(POINTS.astype(float))[0], tight.tangent(POINTS.astype(float))[0])
    y = np.random.default_rng(0).uniform(size=(3, N))
    share = (y - y**2) @ tight.shift / 2
    assert np.abs(share).min() > 1e-6
    np.testing.assert_allclose(tight.tangent(y)[0], rough.tangent(y)[0] + share)
