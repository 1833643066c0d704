"""Every formulation finds the optimum that enumeration finds, says so, and says it in words when it cannot."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from itertools import combinations

import numpy as np
import pytest
import reference
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toys import make_toy

from brainsurgeon import BrainsurgeonError
from brainsurgeon.exact import FORMULATIONS, Certified, Instance, solve
from brainsurgeon.exact.instance import LARGEST

SOLVERS = {name: "pyscipopt" for name in ("cbs", "cbs-s", "cbs-s-dense")} | {
    name: "highspy" for name in ("cbs-s-linear", "benders", "cbs-u")
}
OPTIMISERS = [name for name in FORMULATIONS if name != "cbs-u"]


def needs(formulation: str) -> None:
    if formulation in SOLVERS:
        pytest.importorskip(SOLVERS[formulation], reason="a solver of the extra `exact`")


def make(seed: int, N: int, K: int, damping: float = 0.05, slope: float = 0.0) -> Instance:
    toy = make_toy(seed, K, N)
    a = slope * np.random.default_rng(seed).normal(size=N)
    return Instance.from_gradients(toy.G, toy.w, damping, a)


def enumerate_best(instance: Instance, count: int, cost: str) -> float:
    function = instance.selection_cost if cost == "selection" else instance.joint_cost
    sets = (np.isin(np.arange(instance.size), P) for P in combinations(range(instance.size), count))
    return min(function(pruned) for pruned in sets)


@st.composite
def instances(draw: st.DrawFn, largest: int) -> tuple[Instance, int]:
    N = draw(st.integers(1, largest))
    count = draw(st.integers(0, N))
    seed, K = draw(st.integers(0, 10**6)), draw(st.integers(1, 20))
    damping = draw(st.sampled_from([1e-4, 1e-2, 1.0]))
    return make(seed, N, K, damping, draw(st.sampled_from([0.0, 0.2]))), count


def check(found: Certified, instance: Instance, count: int, best: float) -> None:
    scale = max(abs(best), abs(best - instance.floor), 1e-9)
    assert int(found.pruned.sum()) == count
    assert found.status == "optimal"
    assert found.objective == pytest.approx(best, abs=3e-6 * scale)
    assert found.lower_bound <= best + 1e-6 * scale
    assert found.objective - found.lower_bound <= 1e-5 * scale
    assert instance.step_cost(found.delta.numpy()) == pytest.approx(found.objective, abs=1e-9 * scale + 1e-12)
    assert torch.equal(found.delta[found.pruned], -torch.from_numpy(instance.weights)[found.pruned])


@pytest.mark.parametrize("formulation", ["branch-and-bound", "branch-and-bound-s"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_branch_and_bound_finds_what_enumeration_finds(formulation: str, data: st.DataObject) -> None:
    """For every instance tried, of up to 12 weights, with and without a first-order term."""
    instance, count = data.draw(instances(12))
    best = enumerate_best(instance, count, FORMULATIONS[formulation].cost)
    check(solve(instance, count, formulation), instance, count, best)


@pytest.mark.parametrize("formulation", [name for name in OPTIMISERS if name in SOLVERS])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_papers_programs_find_what_enumeration_finds(formulation: str, data: st.DataObject) -> None:
    needs(formulation)
    instance, count = data.draw(instances(8))
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


def test_the_costs_are_those_of_the_paper() -> None:
    """The instance's two costs are equation 6 and the joint cost, as written in the reference."""
    instance = make(3, 9, 5)
    P = [0, 3, 4, 8]
    pruned = np.isin(np.arange(9), P)
    H, w = instance.hessian, instance.weights
    assert instance.selection_cost(pruned) == pytest.approx(reference.selection_cost(H, w, P))
    assert instance.joint_cost(pruned) == pytest.approx(reference.joint_cost(H, w, P))
    np.testing.assert_allclose(instance.update(pruned), reference.obs_step(H, w, P))
    factor, damping = instance.factor
    np.testing.assert_allclose(factor.T @ factor + damping * np.eye(9), instance.hessian)
    assert len(factor) == 5


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


def test_a_problem_and_its_quadratic_model_are_taken_as_they_are() -> None:
    toy = make_toy(7, 6, 10, blocks=[slice(0, 4), slice(4, 10)])
    H = reference.block_diagonal(reference.fisher(toy.G, toy.damping), toy.blocks)
    best, P = reference.best_joint(H, toy.w, 5)
    for problem in (toy.problem(5), toy.quadratic()):
        found = solve(problem, 5)
        assert found.objective == pytest.approx(best)
        assert tuple(found.pruned.nonzero().squeeze(1).tolist()) == P


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


@pytest.mark.parametrize("formulation", list(SOLVERS))
def test_a_missing_solver_is_named_with_its_extra(formulation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, SOLVERS[formulation], None)
    with pytest.raises(BrainsurgeonError, match=r"brainsurgeon\[exact\]"):
        solve(make(0, 6, 4), 3, formulation)


@pytest.mark.parametrize("module", ["pyscipopt", "highspy"])
def test_the_solvers_are_imported_only_where_they_are_used(module: str) -> None:
    code = f"import sys, brainsurgeon.exact; assert {module!r} not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
