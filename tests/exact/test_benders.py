"""The decomposition against enumeration, and its cuts."""

import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instances import finds_what_enumeration_finds, make, needs

from brainsurgeon.exact.benders import _Master, benders
from brainsurgeon.exact.joint_relaxation import rough_joint


@pytest.mark.parametrize("formulation", ["benders"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_papers_programs_find_what_enumeration_finds(formulation: str, data: st.DataObject) -> None:
    finds_what_enumeration_finds(formulation, data)


def test_every_cut_lies_below_the_cost_and_touches_it_where_it_was_made() -> None:
    instance = make(2, 7, 5)
    sets = np.array([np.isin(np.arange(7), P) for P in combinations(range(7), 3)])
    costs = np.array([instance.joint_cost(P) for P in sets])
    relaxation = rough_joint(instance, 3)
    master = _Master(relaxation, 3.7, instance.floor)
    for number in (0, 11, 20):
        assert master.cut(sets[number].astype(float)) == pytest.approx(costs[number])
        columns, slopes, level, _ = master.rows[-1]
        assert columns == [*range(7), 7]
        tangent = np.array([master.cost(level - float(np.dot(slopes[:7], P))) for P in sets])
        assert (tangent <= costs + 1e-9).all()
        assert tangent[number] == pytest.approx(costs[number])
        values, gradients = relaxation.tangent(sets[number : number + 1].astype(float))
        expected = values[0] + (sets.astype(float) - sets[number]) @ gradients[0]
        np.testing.assert_allclose(tangent, expected)


def test_the_master_with_a_cut_at_every_set_knows_the_optimum() -> None:
    needs("benders")
    instance = make(2, 7, 5)
    sets = np.array([np.isin(np.arange(7), P) for P in combinations(range(7), 3)])
    master = _Master(rough_joint(instance, 3), 1.0, instance.floor)
    best = min(master.cut(P.astype(float)) for P in sets)
    answer = master.solve(float("inf"))
    assert master.cost(answer.bound) == pytest.approx(best, rel=1e-6)


def test_without_time_the_bound_is_true() -> None:
    needs("benders")
    instance, start = make(4, 9, 6), np.arange(9) < 4
    found = benders(instance, 4, start, time.perf_counter() - 1)
    assert found.objective <= instance.joint_cost(start) + 1e-12
    assert found.lower <= found.objective
    assert int(found.pruned.sum()) == 4
