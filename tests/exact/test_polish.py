"""The polish: the cost of CBS-S never rises, counts stay exact, and small problems are solved."""

from __future__ import annotations

import time

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Toy, make_toy, one_group, toys

from brainsurgeon import BrainsurgeonError, Event
from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.selection import Magnitude
from brainsurgeon.exact import polish as module
from brainsurgeon.exact.continuous import Continuous
from brainsurgeon.exact.polish import Polish
from brainsurgeon.exact.relaxed import Relaxed


def polish_of(problem: Problem, start: torch.Tensor, **options: float) -> torch.Tensor:
    return Polish(lambda _: start, **options)(problem)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(toy=toys(14), seed=st.integers(0, 100), data=st.data())
def test_the_cost_never_rises_and_the_counts_stay(toy: Toy, seed: int, data: st.DataObject) -> None:
    """From any mask, with neighbourhoods smaller than the problem."""
    problem = toy.problem(data.draw(st.integers(0, toy.size)), seed=seed)
    start = problem.budget.lowest(torch.from_numpy(np.random.default_rng(seed).normal(size=toy.size)))
    before = start.clone()
    found = polish_of(problem, start, neighbourhood=4, pool=6, patience=2, rounds=6)
    problem.budget.check(found)
    assert problem.quadratic.cost(found) <= problem.quadratic.cost(before) * (1 + 1e-12) + 1e-12
    assert torch.equal(start, before), "the mask that was given is not touched"


@pytest.mark.parametrize("seed", range(8))
def test_a_problem_that_fits_one_neighbourhood_is_solved(seed: int) -> None:
    toy = make_toy(seed, 7, 13)
    problem = toy.problem(6)
    H = reference.fisher(toy.G, toy.damping)
    found = Polish(Magnitude())(problem)
    assert problem.quadratic.cost(found) == pytest.approx(reference.best_selection(H, toy.w, 6)[0])


def test_it_leaves_where_swaps_cannot() -> None:
    """Two pairs that cancel: any single swap away from the poorer pair costs more, the exchange of both saves."""
    G = np.array([[1.0, -1.0, 3.0, -3.0]])
    toy = Toy(G, np.array([1.0, 1.0, 0.5, 0.5]), 0.1)
    problem = toy.problem(2)
    start = torch.tensor([True, True, False, False])
    assert module.WideSearch(min_improvement=1e-12).step(problem, start, problem.quadratic.pressure(start)) == []
    assert polish_of(problem, start).tolist() == [False, False, True, True]


def test_groups_of_a_budget_keep_their_counts() -> None:
    toy = make_toy(5, 8, 20)
    groups = (torch.arange(0, 20, 2), torch.arange(1, 20, 2))
    budget = Budget(groups, (7, 3))
    problem = toy.problem(budget)
    start = budget.lowest(problem.weights.abs())
    found = polish_of(problem, start, neighbourhood=6, rounds=10)
    budget.check(found)
    assert problem.quadratic.cost(found) < problem.quadratic.cost(start)


def test_what_it_says_it_gained_is_what_it_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool's own account of the cost agrees with the quadratic model's."""
    toy = make_toy(6, 10, 60)
    events: list[Event] = []
    problem = Problem(
        torch.from_numpy(toy.w),
        one_group(60, 30),
        torch.Generator().manual_seed(0),
        toy.quadratic(),
        None,
        events.append,
    )
    monkeypatch.setattr(module._Polishing, "_descend", lambda self: None)
    start = Magnitude()(problem)
    found = polish_of(problem, start, neighbourhood=16, pool=20, rounds=12)
    gained = [event.values["gained"] for event in events if event.stage == "polish"]
    assert gained[-1] > 0
    assert gained == sorted(gained)
    assert problem.quadratic.cost(start) - problem.quadratic.cost(found) == pytest.approx(gained[-1])


def test_seconds_and_rounds_are_kept() -> None:
    toy = make_toy(7, 30, 400)
    events: list[Event] = []
    problem = Problem(
        torch.from_numpy(toy.w),
        one_group(400, 200),
        torch.Generator().manual_seed(0),
        toy.quadratic(),
        None,
        events.append,
    )
    start = Magnitude()(problem)
    polish_of(problem, start, rounds=2)
    assert len([event for event in events if event.stage == "polish"]) == 2
    began = time.perf_counter()
    assert torch.equal(polish_of(problem, start, seconds=0.0), start)
    polish_of(problem, start, seconds=0.5)
    assert time.perf_counter() - began < 4


def test_the_same_seed_gives_the_same_mask() -> None:
    toy = make_toy(8, 12, 80)
    start = Magnitude()(toy.problem(40))
    masks = [polish_of(toy.problem(40, seed=3), start, rounds=6, neighbourhood=12, seconds=60.0) for _ in range(2)]
    assert torch.equal(*masks)


def test_an_interrupt_keeps_the_mask_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = make_toy(9, 12, 80)
    events: list[Event] = []
    problem = Problem(
        torch.from_numpy(toy.w),
        one_group(80, 40),
        torch.Generator().manual_seed(0),
        toy.quadratic(),
        None,
        events.append,
    )

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "minimise", interrupted)
    found = Polish(Magnitude())(problem)
    problem.budget.check(found)
    assert "interrupted" in events[-1].stage


def test_an_interrupted_relaxation_is_rounded_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_toy(0, 6, 50).problem(20)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Continuous, "minimise", interrupted)
    assert torch.equal(Relaxed()(problem), Magnitude()(problem))


def test_bad_settings_are_named() -> None:
    for bad in ({"neighbourhood": 1}, {"pool": 0}, {"seconds": -1.0}, {"patience": 0}, {"seconds": float("inf")}):
        with pytest.raises(BrainsurgeonError, match="neighbourhood must be at least 2"):
            Polish(**bad)  # type: ignore[arg-type]
    with pytest.raises(BrainsurgeonError, match="seconds"):
        Relaxed(seconds=float("nan"))


@pytest.mark.parametrize("seed", range(4))
def test_the_relaxed_start_prunes_what_the_relaxation_prunes_most(seed: int) -> None:
    """Exact counts in every group, and a cost above the relaxation's bound."""
    toy = make_toy(seed, 6, 50)
    problem = toy.problem(Budget((torch.arange(20), torch.arange(20, 50)), (5, 20)))
    found = Relaxed()(problem)
    problem.budget.check(found)
    relaxation = Continuous(problem.quadratic, problem.budget)
    relaxation.minimise(found, problem.quadratic.cost(found), float("inf"))
    assert problem.quadratic.cost(found) >= relaxation.lower - 1e-12
    magnitude = problem.budget.lowest(problem.weights.abs())
    assert problem.quadratic.cost(found) < problem.quadratic.cost(magnitude)


def test_without_time_the_relaxed_start_is_magnitude() -> None:
    problem = make_toy(0, 6, 50).problem(20)
    assert torch.equal(Relaxed(seconds=0.0)(problem), Magnitude()(problem))
