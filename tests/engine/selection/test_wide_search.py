"""The wide search against brute force over swaps and masks."""

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from searches import StartAt, swaps_of
from torch import Tensor
from toys import FINE, Toy, ToyJudge, arbitrary_loss, dense, indices_of, make_toy, mask_of, optima_found, optimum, toys

from brainsurgeon.engine.selection import Randomized, WideSearch


@given(toys(), st.data())
def test_a_wide_step_that_finds_nothing_is_at_a_local_optimum(toy: Toy, data: st.DataObject) -> None:
    P = data.draw(st.sets(st.integers(0, toy.size - 1)))
    swaps, H = swaps_of(toy, tuple(P), WideSearch(min_improvement=1e-6)), dense(toy)
    changes = [
        reference.beta(H, toy.w, sorted(P), j)
        - reference.gamma(H, toy.w, i, j)
        - reference.alpha(H, toy.w, sorted(P), i)
        for i in P
        for j in set(range(toy.size)) - P
    ]
    best = min(changes, default=0.0)
    assert bool(swaps) == (best <= -1e-6)
    if swaps:
        first = mask_of([k for k in P if k != swaps[0][0]] + [swaps[0][1]], toy.size)
        quadratic = toy.quadratic()
        change = 2 * (quadratic.cost(first) - quadratic.cost(mask_of(sorted(P), toy.size)))
        assert change == pytest.approx(best, abs=1e-9)


@given(st.integers(0, 1000), st.integers(1, 8))
def test_the_wide_search_judged_by_its_model_lies_between_its_start_and_the_optimum(seed: int, count: int) -> None:
    toy = make_toy(seed, 6, 9)
    quadratic, start = toy.quadratic(), tuple(range(count))
    judge = ToyJudge(quadratic.cost)
    found = WideSearch(StartAt(start), min_improvement=1e-9)(toy.problem(count, judge))
    assert optimum(toy, count) - FINE <= quadratic.cost(found) <= quadratic.cost(mask_of(start, 9)) + FINE


def test_the_wide_search_finds_most_optima_of_tiny_problems() -> None:
    """Not a theorem, but a search that finds fewer than 25 of 30 optima has lost something."""
    assert optima_found(WideSearch(min_improvement=FINE), 30, 9, 4) >= 25


@pytest.mark.parametrize("seed", range(5))
def test_of_several_starts_the_one_that_ends_best_by_the_judge_wins(seed: int) -> None:
    toy, judge, start = make_toy(seed, 6, 30), ToyJudge(arbitrary_loss(seed)), Randomized(num_draws=8)
    starts = start.several(toy.problem(15, judge), 4)
    ends = [WideSearch(StartAt(tuple(indices_of(mask))))(toy.problem(15, judge)) for mask in starts]
    found = WideSearch(start, starts=4)(toy.problem(15, judge))
    assert judge.loss(found) == min(map(judge.loss, ends))


def test_the_search_stops_after_steps_that_bring_no_better_loss() -> None:
    toy = make_toy(5, 8, 60)
    asked = []

    class Stubborn(ToyJudge):
        def is_better(self, new: Tensor, old: Tensor) -> bool:
            asked.append(new)
            return False

    search = WideSearch(StartAt(tuple(range(30))), swaps_per_step=1, patience=2, max_steps=50)
    start = mask_of(range(30), 60)
    assert torch.equal(search(toy.problem(30, Stubborn(lambda mask: 0.0))), start)
    assert len(asked) == 3
