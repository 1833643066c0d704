"""Every formulation finds the optimum that enumeration finds, says so, and says it in words when it cannot."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import OPTIMISERS, check, enumerate_best, instances, make, needs

from brainsurgeon import BrainsurgeonError
from brainsurgeon.exact import FORMULATIONS, Instance, solve
from brainsurgeon.exact.instance import LARGEST


@pytest.mark.parametrize("formulation", ["branch-and-bound", "branch-and-bound-s"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_branch_and_bound_finds_what_enumeration_finds(formulation: str, data: st.DataObject) -> None:
    """For every instance tried, of up to 12 weights, with and without a first-order term."""
    instance, count = data.draw(instances(12))
    best = enumerate_best(instance, count, FORMULATIONS[formulation].cost)
    check(solve(instance, count, formulation), instance, count, best)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", OPTIMISERS)
@pytest.mark.parametrize("N", [14, 16])
@pytest.mark.parametrize("seed", range(3))
def test_all_formulations_agree_with_enumeration_up_to_16_weights(formulation: str, N: int, seed: int) -> None:
    needs(formulation)
    instance = make(seed, N, 6 + 8 * seed)
    for count in (N // 4, N // 2, 3 * N // 4):
        best = enumerate_best(instance, count, FORMULATIONS[formulation].cost)
        check(solve(instance, count, formulation, 120.0), instance, count, best)


def test_the_time_limit_is_kept_and_the_incumbent_returned() -> None:
    rng = np.random.default_rng(0)
    instance = Instance.from_gradients(rng.normal(size=(40, 120)), rng.normal(size=120), 1e-4)
    for formulation in FORMULATIONS:
        needs(formulation)
        began = time.perf_counter()
        found = solve(instance, 60, formulation, time_limit=0.5)
        assert time.perf_counter() - began < 30
        assert int(found.pruned.sum()) == 60
        assert np.isfinite(found.objective)
        if formulation != "cbs-u":
            assert found.status == "time limit"
            assert found.gap > 0
            assert "time limit" in found.summary()


INTERRUPTED = """
import numpy as np
from brainsurgeon.exact import Instance, solve
rng = np.random.default_rng(0)
instance = Instance.from_gradients(rng.normal(size=(30, 90)), rng.normal(size=90), 1e-4)
print("ready", flush=True)
found = solve(instance, 45, FORMULATION, time_limit=60)
print(found.status, int(found.pruned.sum()))
"""


@pytest.mark.parametrize("formulation", ["branch-and-bound", "cbs-s", "cbs-s-linear"])
def test_an_interrupt_gives_the_incumbent_and_no_traceback(formulation: str) -> None:
    """Ctrl-C from outside, as a terminal sends it."""
    needs(formulation)
    code = INTERRUPTED.replace("FORMULATION", repr(formulation))
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(2.0)
    child.send_signal(signal.SIGINT)
    began = time.perf_counter()
    out, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert out.split()[-2:] == ["interrupted", "45"]  # SCIP has a word of its own before that
    assert time.perf_counter() - began < 30


@pytest.mark.parametrize("count", [-1, 7, 2.5, True])
def test_an_infeasible_count_is_named(count: object) -> None:
    with pytest.raises(BrainsurgeonError, match="from 0 to 6"):
        solve(make(0, 6, 4), count)  # type: ignore[arg-type]


def test_bad_requests_are_answered_in_words() -> None:
    instance = make(0, 6, 4)
    with pytest.raises(BrainsurgeonError, match="the formulations are: branch-and-bound"):
        solve(instance, 3, "simplex")
    with pytest.raises(BrainsurgeonError, match="got list"):
        solve([1, 2], 3)  # type: ignore[arg-type]
    with pytest.raises(BrainsurgeonError, match="3 of them True"):
        solve(instance, 3, start=torch.zeros(6, dtype=torch.bool))
    with pytest.raises(BrainsurgeonError, match="time_limit"):
        solve(instance, 3, time_limit=-1)
    with pytest.raises(BrainsurgeonError, match="raise the damping"):
        Instance.from_gradients(np.ones((2, 5)), np.ones(5), 0.0)
    with pytest.raises(BrainsurgeonError, match="not finite"):
        Instance.from_gradients(np.full((2, 5), np.nan), np.ones(5), 0.1)
    with pytest.raises(BrainsurgeonError, match="certificate"):
        Instance.from_gradients(np.ones((1, LARGEST + 1)), np.ones(LARGEST + 1), 0.1)
    with pytest.raises(BrainsurgeonError, match="shapes"):
        Instance.from_gradients(np.ones((2, 5)), np.ones(4), 0.1)


def test_weights_that_do_not_matter_are_no_trouble() -> None:
    """Zero weights, and weights whose gradients are all zero, as in a network with dead inputs."""
    rng = np.random.default_rng(2)
    G, w = rng.normal(size=(9, 12)), rng.normal(size=12)
    G[:, :3] = 0
    w[3:5] = 0
    instance = Instance.from_gradients(G, w, 1e-3)
    for name in ("branch-and-bound", "branch-and-bound-s"):
        for count in (2, 6, 10):
            best = enumerate_best(instance, count, FORMULATIONS[name].cost)
            check(solve(instance, count, name), instance, count, best)
