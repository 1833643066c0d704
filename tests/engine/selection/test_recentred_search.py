"""The recentred search: never worse by the judge, and the wide search's equal where its model is the loss."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys import ToyJudge, arbitrary_loss, make_toy, optimum, quadratic_judge

from brainsurgeon.engine.problem import Problem, Selection
from brainsurgeon.engine.selection import LocalSearch, Magnitude, Randomized, RecentredSearch
from brainsurgeon.events import Event
from brainsurgeon.events.clock import TimeUp


@given(st.integers(0, 10_000))
def test_the_search_is_never_worse_than_its_start_by_the_judge(seed: int) -> None:
    """With a loss and slopes that have nothing to do with the model or with one another."""
    toy, loss, generator = make_toy(seed, 6, 20), arbitrary_loss(seed), torch.Generator().manual_seed(seed)

    def slope(pruned: Tensor) -> Tensor:
        return torch.randn(20, dtype=torch.float64, generator=generator)

    problem = toy.problem(10, ToyJudge(loss, slope))
    assert loss(RecentredSearch(Magnitude(), stiffness=1.0)(problem)) <= loss(Magnitude()(problem))


@given(st.integers(0, 1000), st.integers(1, 8))
def test_with_its_model_as_the_loss_the_search_ends_below_its_start_and_above_the_optimum(
    seed: int, count: int
) -> None:
    toy = make_toy(seed, 6, 9)
    problem, quadratic = toy.problem(count, quadratic_judge(toy)), toy.quadratic()
    found = RecentredSearch(Magnitude(), stiffness=1.0, min_improvement=1e-9)(problem)
    assert optimum(toy, count) - 1e-9 <= quadratic.cost(found) <= quadratic.cost(Magnitude()(problem)) + 1e-9


def test_with_its_model_as_the_loss_the_search_improves_on_magnitude() -> None:
    better = 0
    for seed in range(10):
        toy = make_toy(seed, 6, 300)
        problem, quadratic = toy.problem(150, quadratic_judge(toy)), toy.quadratic()
        found = RecentredSearch(Magnitude(), stiffness=1.0, max_steps=20)(problem)
        better += quadratic.cost(found) < 0.9 * quadratic.cost(Magnitude()(problem))
    assert better >= 5


def test_a_judge_that_refuses_every_swap_keeps_the_start() -> None:
    toy = make_toy(0, 6, 20)
    start = Magnitude()(toy.problem(10))
    judge = ToyJudge(lambda mask: float(not torch.equal(mask, start)), quadratic_judge(toy).slope)
    assert torch.equal(RecentredSearch(Magnitude())(toy.problem(10, judge)), start)


def test_a_round_whose_time_is_up_leaves_what_the_rounds_before_found() -> None:
    toy = make_toy(0, 6, 300)
    inner, asked = quadratic_judge(toy), list[Tensor]()

    def slope(pruned: Tensor) -> Tensor:
        asked.append(pruned)
        if len(asked) == 3:
            raise TimeUp
        return inner.slope(pruned)

    def search(steps: int, judge: ToyJudge) -> Tensor:
        return RecentredSearch(Magnitude(), stiffness=1.0, max_steps=steps)(toy.problem(150, judge))

    late = search(20, ToyJudge(inner.loss, slope))
    assert len(asked) == 3
    assert torch.equal(late, asked[2])
    assert inner.loss(late) < inner.loss(Magnitude()(toy.problem(150)))


def test_a_start_whose_time_is_up_is_that_of_magnitude() -> None:
    toy = make_toy(0, 6, 300)

    def late(problem: Problem) -> Tensor:
        raise TimeUp

    def search(start: Selection) -> Tensor:
        return RecentredSearch(start, stiffness=1.0, max_steps=2)(toy.problem(150, quadratic_judge(toy)))

    assert torch.equal(search(late), search(Magnitude()))


@pytest.mark.parametrize(("cheap", "begins"), [(5, LocalSearch()), (6, Randomized())])
def test_where_not_even_six_gradients_are_cheap_the_search_begins_with_algorithm_1(
    cheap: int, begins: Selection
) -> None:
    moved = 0
    for seed in range(5):
        toy = make_toy(seed, 6, 300)
        inner, asked = quadratic_judge(toy), list[Tensor]()

        def slope(pruned: Tensor, inner: ToyJudge = inner, asked: list[Tensor] = asked) -> Tensor:
            asked.append(pruned)
            assert inner.slope is not None
            return inner.slope(pruned)

        RecentredSearch()(toy.problem(150, ToyJudge(inner.loss, slope, cheap=cheap)))
        drawn, improved = (start(toy.problem(150, inner)) for start in (Randomized(), LocalSearch()))
        moved += not torch.equal(drawn, improved)
        assert torch.equal(asked[0], begins(toy.problem(150, inner)))
    assert moved >= 3


def test_a_start_that_was_given_is_left_as_it_is_where_gradients_are_dear() -> None:
    toy = make_toy(0, 6, 300)
    inner, asked = quadratic_judge(toy), list[Tensor]()

    def slope(pruned: Tensor) -> Tensor:
        asked.append(pruned)
        assert inner.slope is not None
        return inner.slope(pruned)

    problem = toy.problem(150, ToyJudge(inner.loss, slope, cheap=0))
    RecentredSearch(Magnitude())(problem)
    assert torch.equal(asked[0], Magnitude()(problem))
    assert 1 <= len(asked) <= 6


@pytest.mark.parametrize("steps", [1, 3])
def test_the_number_of_rounds_can_be_bounded(steps: int) -> None:
    toy, asked = make_toy(0, 6, 40), list[Tensor]()
    inner = quadratic_judge(toy)

    def slope(pruned: Tensor) -> Tensor:
        asked.append(pruned)
        assert inner.slope is not None
        return inner.slope(pruned)

    problem: Problem = toy.problem(20, ToyJudge(inner.loss, slope))
    RecentredSearch(Magnitude(), max_steps=steps)(problem)
    assert 1 <= len(asked) <= steps


def test_a_round_offers_at_most_four_times_what_the_last_took() -> None:
    """A judge that likes one swap at first, then all it can get: the steps grow as 1, 4, 16, …."""
    toy, offered, generator = make_toy(0, 6, 400), list[int](), torch.Generator().manual_seed(0)

    def steep(pruned: Tensor) -> Tensor:
        return 100 * torch.randn(400, dtype=torch.float64, generator=generator)

    class Growing(ToyJudge):
        def best_masks(self, masks, count=1):  # type: ignore[no-untyped-def]
            moved = [int((mask & ~masks[0]).sum()) for mask in masks]
            offered.append(max(moved))
            return [moved.index(1) if len(offered) == 1 else 1]

    RecentredSearch(Magnitude(), max_steps=4)(toy.problem(200, Growing(arbitrary_loss(0), steep)))
    assert offered[0] > 16
    assert offered[1:] == [4, 16, 64]


def test_a_search_that_starts_too_stiff_softens_until_it_finds_swaps() -> None:
    """Wherever the model as it is offers an improvement, a far too stiff one finds one too, given the rounds."""
    improved = 0
    for seed in range(20):
        toy = make_toy(seed, 6, 30)
        problem, quadratic = toy.problem(15, quadratic_judge(toy)), toy.quadratic()
        start = quadratic.cost(Magnitude()(problem))
        soft, stiff = (
            quadratic.cost(RecentredSearch(Magnitude(), stiffness=s, min_improvement=1e-9, max_steps=50)(problem))
            for s in (1.0, 1024.0)
        )
        improved += soft < start
        assert (stiff < start) == (soft < start)
    assert improved > 10


def test_a_gradient_is_taken_anew_at_every_mask_that_the_search_comes_to() -> None:
    """And once at each: a round that takes nothing tries another stiffness with the gradient at hand."""
    toy, events = make_toy(3, 6, 60), list[Event]()
    inner, asked = quadratic_judge(toy), list[Tensor]()

    def slope(pruned: Tensor) -> Tensor:
        asked.append(pruned.clone())
        assert inner.slope is not None
        return inner.slope(pruned)

    problem = replace(toy.problem(30, ToyJudge(inner.loss, slope)), notify=events.append)
    search = RecentredSearch(Magnitude(), stiffness=1.0, pool=4, max_steps=12, min_improvement=1e-9)
    found = search(problem)
    taken = [int(event.values["swaps"]) for event in events if event.stage == "search"]
    came_to = sum(map(bool, taken[:-1]))
    assert came_to >= 3
    assert len(asked) == 1 + came_to
    assert torch.equal(asked[0], Magnitude()(problem))
    assert len({tuple(mask.tolist()) for mask in asked}) == len(asked)
    last = asked[-1] if not taken[-1] else None
    assert last is None or torch.equal(last, found)
    for before, after, swaps in zip(asked, asked[1:], filter(None, taken), strict=False):
        assert int((before & ~after).sum()) == swaps
