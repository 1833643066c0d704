"""A good set to start from."""

from __future__ import annotations

import numpy as np
import pytest
from relaxations import COUNT, POINTS, make, relaxations

from brainsurgeon.exact.incumbent import lowest, rounded, swap_descent


def test_swaps_only_improve_and_keep_the_count() -> None:
    for relaxation, costs in relaxations(make(2)):
        for start in POINTS[::17]:
            found, cost = swap_descent(relaxation, start)
            assert found.sum() == COUNT
            assert cost <= costs[(start == POINTS).all(1)][0] + 1e-12
            assert cost == pytest.approx(costs[(found == POINTS).all(1)][0], abs=1e-9)


def test_no_swap_is_left_at_the_end_and_rounding_is_no_worse_than_the_start() -> None:
    for relaxation, costs in relaxations(make(4)):
        for start in POINTS[::31]:
            found = rounded(relaxation, start)
            assert found.sum() == COUNT
            cost = costs[(found == POINTS).all(1)][0]
            assert cost <= costs[(start == POINTS).all(1)][0] + 1e-12
            near = (found != POINTS).sum(1) == 2
            assert cost <= costs[near].min() + 1e-9 * abs(cost)


def test_the_lowest_scores_are_taken_and_ties_by_their_place() -> None:
    assert lowest(np.array([2.0, 1.0, 1.0, 1.0, 0.0]), 3).tolist() == [False, True, True, False, True]
    assert not lowest(np.ones(3), 0).any()
