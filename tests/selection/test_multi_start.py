"""Multi-start: starts that differ, a race of searches, exact counts."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from brainsurgeon import BrainsurgeonError
from brainsurgeon.mask import make_budget
from brainsurgeon.problem import Problem
from brainsurgeon.selection import Given, Magnitude, MultiStart, Randomized, RecentredSearch, WideSearch
from brainsurgeon.selection.multi_start import diverse, searched
from toys import FINE, Toy, ToyJudge, arbitrary_loss, make_toy, optima_found, optimum, problem_of, toys

FEW = Randomized(num_draws=9)


def multi_start(starts: int = 6) -> MultiStart:
    return MultiStart(FEW, WideSearch(min_improvement=FINE), starts)


@given(toys(12), st.data(), st.integers(1, 9))
@settings(max_examples=40)
def test_counts_are_exact(toy: Toy, data: st.DataObject, starts: int) -> None:
    problem = problem_of(toy, data.draw(st.integers(0, toy.size)))
    problem.budget.check(multi_start(starts)(problem))


@given(st.integers(0, 1000), st.integers(1, 8))
@settings(max_examples=40)
def test_judged_by_its_model_it_ends_between_its_best_start_and_the_optimum(seed: int, count: int) -> None:
    """No start, and so not the best of them, has a lower objective than what comes out."""
    toy = make_toy(seed, 6, 9)
    quadratic = toy.quadratic()
    starts = diverse(problem_of(toy, count), FEW, 6)
    found = quadratic.cost(multi_start()(problem_of(toy, count)))
    assert optimum(toy, count) - FINE <= found <= min(map(quadratic.cost, starts)) + FINE


def test_it_finds_nearly_all_optima_of_tiny_problems() -> None:
    assert optima_found(multi_start(), 30, 12, 6) >= 28


@given(st.integers(0, 10_000))
@settings(max_examples=10)
def test_it_is_never_worse_than_any_start_by_the_judge(seed: int) -> None:
    toy, loss = make_toy(seed, 6, 20), arbitrary_loss(seed)
    starts = diverse(toy.problem(10, ToyJudge(loss)), FEW, 6)
    found = MultiStart(FEW, starts=6)(toy.problem(10, ToyJudge(loss)))
    assert loss(found) <= min(map(loss, starts))


def test_the_starts_differ_and_the_usual_rung_comes_first() -> None:
    toy = make_toy(0, 6, 200)
    problem = problem_of(toy, 100)
    starts = diverse(problem, FEW, 6)
    assert len(starts) == 6
    assert all(not torch.equal(a, b) for a, b in combinations(starts, 2))
    usual = Randomized(num_draws=3).several(problem_of(toy, 100), 2)
    assert torch.equal(starts[0], usual[0])


def test_more_buckets_stray_further_from_magnitude() -> None:
    """What the rungs are for: the starts of the finest differ from plain magnitude pruning more than the coarsest's."""
    toy = make_toy(0, 6, 900)
    problem = problem_of(toy, 450)
    plain = Magnitude()(problem)
    distance = {}
    for rung in (7, 30, 120):
        start = Randomized(num_buckets=rung)
        draws = [start.draw(problem, start.orders(problem)) for _ in range(5)]
        distance[rung] = sum(int((draw ^ plain).sum()) for draw in draws)
    assert distance[7] < distance[30] < distance[120]


def test_starts_that_are_the_same_run_once() -> None:
    """All weights are to go: there is one mask, and one search."""
    toy, asked = make_toy(0, 4, 10), list[Tensor]()

    class Watching(ToyJudge):
        def is_better(self, new: Tensor, old: Tensor) -> bool:
            asked.append(new)
            return False

    found = MultiStart(FEW)(toy.problem(10, Watching(lambda mask: 0.0)))
    assert bool(found.all())
    assert not asked


def test_the_race_halves_the_searches_until_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, runs = make_toy(2, 6, 60), list[int | None]()
    original = WideSearch.__call__

    def watched(self: WideSearch, problem: Problem) -> Tensor:
        runs.append(self.max_steps)
        return original(self, problem)

    monkeypatch.setattr(WideSearch, "__call__", watched)
    MultiStart(FEW, WideSearch(max_steps=17), starts=6, short=2)(problem_of(toy, 30))
    assert runs == [2] * (6 + 3 + 2) + [17]


def test_any_search_with_a_start_can_be_raced() -> None:
    toy = make_toy(4, 6, 80)
    problem = problem_of(toy, 40)
    found = MultiStart(FEW, RecentredSearch(stiffness=1.0), 3)(problem)
    problem.budget.check(found)
    assert problem.quadratic.cost(found) < problem.quadratic.cost(Magnitude()(problem))


@pytest.mark.parametrize("rule", ["uniform", {"a": 0.2, "c": 0.9}], ids=["uniform", "pattern"])
def test_budgets_by_layer_are_kept(rule: str | dict[str, float]) -> None:
    toy = make_toy(1, 8, 60, blocks=[slice(0, 25), slice(25, 60)])
    budget = make_budget(rule, 0.5, [("a", 0, 20), ("b", 20, 25), ("c", 45, 15)], torch.device("cpu"))
    problem = toy.problem(budget, ToyJudge(toy.quadratic().cost))
    found = multi_start()(problem)
    budget.check(found)
    assert problem.quadratic.cost(found) < problem.quadratic.cost(Magnitude()(problem))


def test_the_same_seed_gives_the_same_mask() -> None:
    toy = make_toy(3, 6, 40)
    assert torch.equal(multi_start()(problem_of(toy, 20, 5)), multi_start()(problem_of(toy, 20, 5)))


def test_a_search_runs_from_the_mask_that_it_is_given() -> None:
    toy = make_toy(3, 6, 40)
    problem = problem_of(toy, 20)
    mask = Magnitude()(problem)
    assert torch.equal(searched(problem, WideSearch(), mask), WideSearch(Given({"m": mask}))(problem))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"starts": 0}, "at least 1"),
        ({"short": 0}, "at least 1"),
        ({"start": Magnitude()}, "Randomized"),
        ({"search": Magnitude()}, "max_steps"),
        ({"search": len}, "max_steps"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict, said: str) -> None:
    with pytest.raises(BrainsurgeonError, match=said):
        MultiStart(**options)
