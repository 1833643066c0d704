"""CBS relaxed: shares add up, slopes are those of the function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from relaxations import COUNT, POINTS, N, make

from brainsurgeon.exact import Instance, solve
from brainsurgeon.exact.joint_relaxation import rough_joint, share_out
from brainsurgeon.exact.tangent import FREE


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


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_values(seed: int) -> None:
    relaxation = rough_joint(make(seed), COUNT)
    y = np.random.default_rng(seed).uniform(0.2, 0.8, size=(1, N))
    _, gradients = relaxation.tangent(y)
    for i in range(N):
        step = np.zeros((1, N))
        step[0, i] = 1e-6
        slope = (relaxation.tangent(y + step)[0] - relaxation.tangent(y - step)[0]) / 2e-6
        assert gradients[0, i] == pytest.approx(float(slope[0]), rel=1e-4, abs=1e-6)


def test_more_iterations_come_nearer_to_the_minimum_and_keep_to_what_is_decided() -> None:
    state = np.full((1, N), FREE, np.int8)
    state[0, 0], state[0, 4] = 1, 0
    values = []
    for iterations in (1, 10, 400):
        relaxation = replace(rough_joint(make(1), COUNT), iterations=iterations)
        y, _ = relaxation.relax(state, relaxation.cold()[None])
        assert y.sum() == pytest.approx(COUNT)
        assert (y[0, 0], y[0, 4]) == (1.0, 0.0)
        values.append(float(relaxation.tangent(y)[0][0]))
    assert values[2] <= values[1] <= values[0]
    allowed = POINTS[POINTS[:, 0] & ~POINTS[:, 4]].astype(float)
    assert values[2] <= relaxation.tangent(allowed)[0].min()


@pytest.mark.parametrize("zeros", [2, 4])
def test_blocks_that_hold_zeros_already_are_solved(zeros: int) -> None:
    generator = np.random.default_rng(0)
    gradients, weights = generator.normal(size=(20, 9)), generator.normal(size=9)
    weights[:zeros] = 0
    instance = Instance.from_gradients(gradients, weights, 1e-3)
    for count in (zeros - 1, zeros):
        found = solve(instance, count)
        assert found.objective == pytest.approx(0.0, abs=1e-12)
    assert solve(instance, zeros + 1).objective > 0
