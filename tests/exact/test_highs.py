"""The programs for HiGHS against enumeration and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instances import finds_what_enumeration_finds, make, needs

from brainsurgeon.exact import solve
from brainsurgeon.exact.highs import Rows, run


def test_cbs_u_is_the_best_update_of_the_selection() -> None:
    needs("cbs-u")
    instance = make(5, 12, 8, slope=0.1)
    pruned = np.arange(12) % 2 == 0
    found = solve(instance, 6, "cbs-u", start=torch.from_numpy(pruned))
    assert found.objective == pytest.approx(instance.joint_cost(pruned), rel=1e-6)
    np.testing.assert_allclose(found.delta.numpy(), instance.update(pruned), atol=1e-5)
    assert found.lower_bound <= found.objective


def test_without_a_selection_cbs_u_follows_cbs_s() -> None:
    needs("cbs-u")
    instance = make(6, 10, 8)
    selected = solve(instance, 4, "branch-and-bound-s")
    found = solve(instance, 4, "cbs-u")
    assert torch.equal(found.pruned, selected.pruned)
    assert found.objective <= selected.objective


@pytest.mark.parametrize("formulation", ["cbs-s-linear"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_papers_programs_find_what_enumeration_finds(formulation: str, data: st.DataObject) -> None:
    finds_what_enumeration_finds(formulation, data)


def test_rows_are_laid_end_to_end() -> None:
    rows = Rows.of([([0, 2], [1.0, -1.0], 0.0, 1.0), ([], [], -np.inf, 0.0), ([1], [5.0], 2.0, np.inf)])
    assert rows.starts.tolist() == [0, 2, 2, 3]
    assert rows.columns.tolist() == [0, 2, 1]
    assert rows.values.tolist() == [1.0, -1.0, 5.0]
    assert rows.low.tolist() == [0.0, -np.inf, 2.0]


def test_linear_whole_and_quadratic_programs_have_their_known_optima() -> None:
    """min −1.1x − y with 2x + 3y ≤ 6: at (3, 0); whole, with x ≤ 1.5, at (1, 1); and a quadratic one on a line."""
    needs("cbs-u")
    cost, low, high = np.array([-1.1, -1.0]), np.zeros(2), np.full(2, np.inf)
    rows, none = Rows.of([([0, 1], [2.0, 3.0], -np.inf, 6.0)]), np.zeros(2, bool)
    free = run(cost, low, high, rows, none, np.inf)
    assert (free.status, free.bound) == ("optimal", pytest.approx(-3.3))
    whole = run(cost, low, np.array([1.5, np.inf]), rows, ~none, np.inf)
    assert whole.values is not None
    assert whole.bound == pytest.approx(-2.1)
    assert np.round(whole.values).tolist() == [1.0, 1.0]
    line = Rows.of([([0, 1], [1.0, 1.0], 1.0, 1.0)])
    matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    found = run(np.zeros(2), -high, high, line, none, np.inf, None, matrix)
    assert found.values is not None
    np.testing.assert_allclose(found.values, [2 / 3, 1 / 3], atol=1e-6)
