"""Path relinking: a path of exact masks from one to the other, and never a worse mask than the best it began with."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from brainsurgeon import BrainsurgeonError
from brainsurgeon.mask import Budget, make_budget
from brainsurgeon.selection import Magnitude, Randomized, RecentredSearch, Relinking, WideSearch
from brainsurgeon.selection.multi_start import diverse, searched
from brainsurgeon.selection.relinking import walk
from toys import FINE, Toy, ToyJudge, arbitrary_loss, make_toy, optima_found, optimum, problem_of, toys

FEW = Randomized(num_draws=9)
WIDE = WideSearch(min_improvement=FINE)


def drawn(budget: Budget, seed: int) -> Tensor:
    return budget.lowest(torch.rand(budget.size, generator=torch.Generator().manual_seed(seed)))


@given(toys(14), st.integers(0, 100), st.data(), st.integers(1, 5))
def test_a_walk_arrives_by_swaps_of_the_difference_alone(toy: Toy, seed: int, data: st.DataObject, pool: int) -> None:
    """Each weight in which the masks differ moves once, and no other; groups keep their counts at every stop."""
    cut = toy.size // 2
    counts = data.draw(st.integers(0, cut)), data.draw(st.integers(0, toy.size - cut))
    budget = Budget((torch.arange(cut), torch.arange(cut, toy.size)), counts)
    here, there, problem = drawn(budget, seed), drawn(budget, seed + 1), problem_of(toy, budget)
    before = here.clone()
    swaps = walk(problem, here, there, pool)
    assert torch.equal(here, before), "the mask that was given is not touched"
    moved = sorted(index for swap in swaps for index in swap)
    assert moved == (here ^ there).nonzero().squeeze(1).tolist()
    for back, gone in swaps:
        here[back], here[gone] = False, True
    assert torch.equal(here, there)
    for stop in Relinking(pool=pool, stops=3).path(problem, before, there):
        budget.check(stop)


def test_the_walk_takes_the_best_next_swap_of_the_difference() -> None:
    """One pool holds all: every step is the cheapest that there is, by brute force."""
    toy = make_toy(0, 6, 16)
    problem = problem_of(toy, 8)
    here, there = drawn(problem.budget, 0), drawn(problem.budget, 1)
    for back, gone in walk(problem, here, there, 100):
        costs = {}
        for i in (here & ~there).nonzero().squeeze(1).tolist():
            for j in (there & ~here).nonzero().squeeze(1).tolist():
                after = here.clone()
                after[i], after[j] = False, True
                costs[i, j] = problem.quadratic.cost(after)
        assert costs[back, gone] == pytest.approx(min(costs.values()))
        here[back], here[gone] = False, True


def test_the_stops_are_spread_over_the_way_and_leave_the_ends_out() -> None:
    toy = make_toy(0, 6, 200)
    problem = problem_of(toy, 100)
    here, there = drawn(problem.budget, 0), drawn(problem.budget, 1)
    way = int((here ^ there).sum())
    distances = [int((here ^ stop).sum()) for stop in Relinking(stops=3, pool=8).path(problem, here, there)]
    assert distances == pytest.approx([way / 4, way / 2, 3 * way / 4], abs=2)
    assert Relinking().path(problem, here, here) == []


def test_a_better_mask_on_the_way_is_found_and_returned() -> None:
    """A judge that likes one mask between the two best of all: the search must come by it."""
    toy = make_toy(1, 6, 60)
    start, plain = FEW, toy.problem(30, ToyJudge(toy.quadratic().cost))
    relinking = Relinking(start, WideSearch(max_steps=1), elite=2, stops=3)
    masks = [searched(plain, relinking.search, mask) for mask in diverse(plain, start, 2)]
    best, guide = (masks[k] for k in plain.judge.best_masks(masks, 2))
    liked = relinking.path(plain, best, guide)[1]
    cost = plain.quadratic.cost

    def loss(mask: Tensor) -> float:
        return -1.0 if torch.equal(mask, liked) else cost(mask)

    assert torch.equal(relinking(toy.problem(30, ToyJudge(loss))), liked)


@given(st.integers(0, 1000), st.integers(1, 8))
@settings(max_examples=15)
def test_judged_by_its_model_it_ends_between_its_elite_and_the_optimum(seed: int, count: int) -> None:
    toy = make_toy(seed, 6, 9)
    quadratic, problem = toy.quadratic(), problem_of(toy, count)
    elite = [searched(problem, WIDE, mask) for mask in diverse(problem, FEW, 3)]
    found = quadratic.cost(Relinking(FEW, WIDE)(problem_of(toy, count)))
    assert optimum(toy, count) - FINE <= found <= min(map(quadratic.cost, elite)) + FINE


def test_it_finds_nearly_all_optima_of_tiny_problems() -> None:
    assert optima_found(Relinking(FEW, WIDE, elite=6), 30, 12, 6) >= 27


@given(st.integers(0, 10_000))
@settings(max_examples=15)
def test_it_is_never_worse_than_any_start_by_the_judge(seed: int) -> None:
    toy, loss = make_toy(seed, 6, 20), arbitrary_loss(seed)
    starts = diverse(toy.problem(10, ToyJudge(loss)), FEW, 3)
    assert loss(Relinking(FEW, WIDE)(toy.problem(10, ToyJudge(loss)))) <= min(map(loss, starts))


@pytest.mark.parametrize("rule", ["uniform", {"a": 0.2, "c": 0.9}], ids=["uniform", "pattern"])
@pytest.mark.parametrize("search", [WIDE, RecentredSearch(stiffness=1.0)], ids=["wide", "recentred"])
def test_budgets_by_layer_are_kept(rule: str | dict[str, float], search: object) -> None:
    toy = make_toy(1, 8, 60, blocks=[slice(0, 25), slice(25, 60)])
    budget = make_budget(rule, 0.5, [("a", 0, 20), ("b", 20, 25), ("c", 45, 15)], torch.device("cpu"))
    problem = problem_of(toy, budget)
    found = Relinking(FEW, search)(problem)
    budget.check(found)
    assert problem.quadratic.cost(found) < problem.quadratic.cost(Magnitude()(problem))


def test_the_same_seed_gives_the_same_mask() -> None:
    toy = make_toy(3, 6, 40)
    found = [Relinking(FEW)(problem_of(toy, 20, 5)) for _ in range(2)]
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"elite": 1}, "at least 2"),
        ({"stops": 0}, "at least 1"),
        ({"pool": 0}, "at least 1"),
        ({"start": Magnitude()}, "Randomized"),
        ({"search": Magnitude()}, "max_steps"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict, said: str) -> None:
    with pytest.raises(BrainsurgeonError, match=said):
        Relinking(**options)
