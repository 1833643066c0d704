"""The programs for SCIP against enumeration, and its start."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instances import finds_what_enumeration_finds, make

from brainsurgeon.exact.scip import dense_selection, joint_program, lifted_selection


@pytest.mark.parametrize("formulation", ["cbs", "cbs-s", "cbs-s-dense"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_papers_programs_find_what_enumeration_finds(formulation: str, data: st.DataObject) -> None:
    finds_what_enumeration_finds(formulation, data)


@pytest.mark.parametrize("program", [lifted_selection, dense_selection, joint_program])
def test_without_time_the_start_is_the_answer_and_the_bound_is_true(program: object) -> None:
    """What is known is handed over: no pruning is worse than the start."""
    pytest.importorskip("pyscipopt", reason="a solver of the extra `exact`")
    instance, start = make(3, 10, 6, slope=0.1), np.arange(10) < 5
    cost = instance.joint_cost if program is joint_program else instance.selection_cost
    found = program(instance, 5, start, time.perf_counter() - 1)  # type: ignore[operator]
    assert found.status == "time limit"
    assert int(found.pruned.sum()) == 5
    assert found.objective == cost(found.pruned) <= cost(start)
    assert found.lower <= found.objective
