"""Tabu search: swaps on past local optima, with exact counts and an objective that never ends higher."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon import BrainsurgeonError
from brainsurgeon.mask import make_budget
from brainsurgeon.selection import Given, Magnitude, Tabu, WideSearch
from toys import FINE, Toy, ToyJudge, arbitrary_loss, make_toy, mask_of, optima_found, optimum, toys


@given(toys(12), st.data(), st.integers(0, 6), st.integers(0, 10), st.integers(1, 12))
def test_a_step_keeps_the_counts_and_never_raises_the_objective(
    toy: Toy, data: st.DataObject, tenure: int, stall: int, pool: int
) -> None:
    """From any mask, with any memory: what a step returns are exchanges that lower the objective, or nothing."""
    P = data.draw(st.sets(st.integers(0, toy.size - 1)))
    pruned, problem = mask_of(sorted(P), toy.size), toy.problem(len(P))
    search = Tabu(pool=pool, tenure=tenure, stall=stall, min_improvement=FINE)
    swaps = search.step(problem, pruned, problem.quadratic.pressure(pruned))
    back, gone = {i for i, _ in swaps}, {j for _, j in swaps}
    assert len(back) == len(gone) == len(swaps)
    assert back <= P
    assert not gone & P
    after = mask_of(sorted((P - back) | gone), toy.size)
    change = problem.quadratic.cost(after) - problem.quadratic.cost(pruned)
    assert change < 0 if swaps else change == 0


@given(st.integers(0, 1000), st.integers(1, 8))
def test_judged_by_its_model_it_ends_between_its_start_and_the_optimum(seed: int, count: int) -> None:
    toy = make_toy(seed, 6, 9)
    quadratic = toy.quadratic()
    problem = toy.problem(count, ToyJudge(quadratic.cost))
    found = Tabu(Magnitude(), min_improvement=FINE)(problem)
    assert optimum(toy, count) - FINE <= quadratic.cost(found) <= quadratic.cost(Magnitude()(problem)) + FINE


def test_it_finds_nearly_all_optima_of_tiny_problems_and_its_memory_is_why() -> None:
    """From one start each: a descent stops early, and a walk without a memory goes straight back."""
    tabu, forgetful = (optima_found(Tabu(Magnitude(), tenure=t, min_improvement=FINE), 40, 12, 6) for t in (16, 0))
    assert tabu >= 38
    assert tabu > forgetful
    assert tabu > optima_found(WideSearch(Magnitude(), min_improvement=FINE), 40, 12, 6)


def two_pairs() -> tuple[Toy, torch.Tensor]:
    """Two pairs that cancel: any single swap away from the poorer pair costs more, the exchange of both saves."""
    toy = Toy(np.array([[1.0, -1.0, 3.0, -3.0]]), np.array([1.0, 1.0, 0.5, 0.5]), 0.1)
    return toy, torch.tensor([True, True, False, False])


def test_it_leaves_where_single_swaps_cannot() -> None:
    toy, start = two_pairs()
    problem = toy.problem(2, ToyJudge(toy.quadratic().cost))
    given_start = Given({"mask": start})
    assert torch.equal(WideSearch(given_start, min_improvement=FINE)(problem), start)
    assert Tabu(given_start, tenure=1, min_improvement=FINE)(problem).tolist() == [False, False, True, True]


def test_without_moves_past_the_lowest_point_it_is_a_descent() -> None:
    toy, start = two_pairs()
    problem = toy.problem(2, ToyJudge(toy.quadratic().cost))
    assert torch.equal(Tabu(Given({"mask": start}), stall=0, min_improvement=FINE)(problem), start)


@given(st.integers(0, 10_000))
def test_it_is_never_worse_than_its_start_by_the_judge(seed: int) -> None:
    toy, loss = make_toy(seed, 6, 20), arbitrary_loss(seed)
    problem = toy.problem(10, ToyJudge(loss))
    assert loss(Tabu(Magnitude())(problem)) <= loss(Magnitude()(problem))


@pytest.mark.parametrize("rule", ["uniform", {"a": 0.2, "c": 0.9}], ids=["uniform", "pattern"])
def test_budgets_by_layer_are_kept_and_every_layer_is_searched(rule: str | dict[str, float]) -> None:
    toy = make_toy(1, 8, 180, blocks=[slice(0, 75), slice(75, 180)])
    layers = [("a", 0, 60), ("b", 60, 75), ("c", 135, 45)]
    budget = make_budget(rule, 0.5, layers, torch.device("cpu"))
    problem = toy.problem(budget, ToyJudge(toy.quadratic().cost))
    start, found = Magnitude()(problem), Tabu(Magnitude(), min_improvement=FINE)(problem)
    budget.check(found)
    assert problem.quadratic.cost(found) < problem.quadratic.cost(start)
    left = WideSearch(min_improvement=FINE).step(problem, found, problem.quadratic.pressure(found))
    assert left == [], "no swap within any group is left that would help"


def test_the_same_seed_gives_the_same_mask() -> None:
    toy = make_toy(3, 6, 40)

    def found(seed: int) -> torch.Tensor:
        return Tabu()(toy.problem(20, ToyJudge(toy.quadratic().cost), seed))

    assert torch.equal(found(5), found(5))


@pytest.mark.parametrize("settings", [{"pool": 0}, {"tenure": -1}, {"stall": -1}, {"swaps_per_step": 0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(BrainsurgeonError, match="at least"):
        Tabu(**settings)  # type: ignore[arg-type]
