"""Algorithm 2 against its lines, given the deal."""

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import ToyJudge, arbitrary_loss, indices_of, make_toy, mask_of

from brainsurgeon.engine.selection import Magnitude, Randomized
from brainsurgeon.engine.selection.randomized import draw_bucketed
from brainsurgeon.errors import BrainsurgeonError


def deal_by(generator: torch.Generator, size: int, buckets: int) -> list[list[int]]:
    """The deal that a generator makes: a permutation cut into buckets, the larger ones first."""
    order = torch.randperm(size, generator=generator).tolist()
    larger = size - (size // buckets) * buckets
    deal, start = [], 0
    for k in range(buckets):
        stop = start + size // buckets + (k < larger)
        deal.append(order[start:stop])
        start = stop
    return deal


def shares_of(deal: list[list[int]], drawn: list[int]) -> list[int]:
    """How many weights each bucket gave."""
    return [len(set(bucket) & set(drawn)) for bucket in deal]


@given(st.integers(1, 60), st.integers(0, 1000), st.data())
def test_a_draw_is_exact_and_prunes_the_smallest_of_each_bucket(size: int, seed: int, data: st.DataObject) -> None:
    """Given the deal and each bucket's share, the draw is the algorithm's; shares differ by rounding only."""
    buckets, count = data.draw(st.integers(1, size)), data.draw(st.integers(0, size))
    w = torch.randn(size, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    drawn = indices_of(draw_bucketed(w.abs().argsort().numpy(), count, buckets, torch.Generator().manual_seed(seed)))
    deal = deal_by(torch.Generator().manual_seed(seed), size, buckets)
    shares = shares_of(deal, drawn)
    assert len(drawn) == sum(shares) == count
    assert drawn == reference.algorithm_2_draw(w.numpy(), deal, shares)
    assert all(abs(share - count * len(b) / size) < 1 for share, b in zip(shares, deal, strict=True))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(0, 100), st.data())
def test_a_draw_is_exact_under_ties(values: list[int], seed: int, data: st.DataObject) -> None:
    buckets, count = data.draw(st.integers(1, len(values))), data.draw(st.integers(0, len(values)))
    order = torch.tensor(values).argsort(stable=True).numpy()
    drawn = draw_bucketed(order, count, buckets, torch.Generator().manual_seed(seed))
    assert int(drawn.sum()) == count


def test_one_bucket_is_plain_magnitude() -> None:
    toy = make_toy(0, 4, 30)
    order = torch.from_numpy(toy.w).abs().argsort().numpy()
    drawn = draw_bucketed(order, 11, 1, torch.Generator().manual_seed(3))
    assert torch.equal(drawn, Magnitude()(toy.problem(11)))


@pytest.mark.parametrize("seed", range(5))
def test_the_whole_selection_is_algorithm_2_with_plain_magnitude_as_the_first_draw(seed: int) -> None:
    """The deals are read from the same generator, the shares from the draws, the rest is the paper's."""
    toy, loss, generator = make_toy(seed, 4, 41), arbitrary_loss(seed), torch.Generator().manual_seed(seed)
    selection = Randomized(num_buckets=6, num_draws=8, screen=False)
    problem = toy.problem(20, ToyJudge(loss), seed)
    deals, shares = [[list(range(41))]], [[20]]
    for _ in range(7):
        deals.append(deal_by(generator, 41, 6))
        torch.randperm(6, generator=generator)  # which buckets round up
        shares.append(shares_of(deals[-1], indices_of(selection.draw(problem, selection.orders(problem)))))
    expected = reference.algorithm_2(toy.w, deals, shares, lambda Q: loss(mask_of(Q, 41)))
    assert indices_of(selection(toy.problem(20, ToyJudge(loss), seed))) == expected


def test_plain_magnitude_survives_the_screening() -> None:
    toy = make_toy(2, 4, 40)
    plain = Magnitude()(toy.problem(20))
    judge = ToyJudge(lambda mask: 0.0 if torch.equal(mask, plain) else 1.0)
    assert torch.equal(Randomized(num_draws=12, screen=True)(toy.problem(20, judge)), plain)


def test_screening_asks_the_loss_of_fewer_draws_and_of_those_of_lower_cost() -> None:
    toy, offered = make_toy(3, 4, 40), list[list[torch.Tensor]]()
    quadratic = toy.quadratic()

    class Watching(ToyJudge):
        def best_masks(self, masks, count=1):  # type: ignore[no-untyped-def]
            offered.append(list(masks))
            return super().best_masks(masks, count)

    for screen in (False, True):
        Randomized(num_draws=16, screen=screen)(toy.problem(20, Watching(quadratic.cost)))
    everything, screened = ([quadratic.cost(mask) for mask in masks] for masks in offered)
    assert len(screened) < len(everything)
    assert max(screened[1:]) <= sorted(everything)[len(screened)]


def test_seeds_change_the_draws() -> None:
    toy = make_toy(0, 4, 60)
    orders = Randomized().orders(toy.problem(30))
    draws = [Randomized().draw(toy.problem(30, seed=seed), orders) for seed in (0, 1, 0)]
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


@pytest.mark.parametrize("settings", [{"num_draws": 0}, {"num_buckets": 0}, {"num_buckets": -3}])
def test_impossible_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(BrainsurgeonError, match="must be at least 1"):
        Randomized(**settings)  # type: ignore[arg-type]
