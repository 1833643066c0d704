"""The search for a learning rate: the best of neighbours, each tried once, and never more than may be."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.pruning.gradual.rates import (
    FIRST_RATE,
    LONGER,
    RATES,
    SEARCHED,
    TRIED,
    USUAL,
    WORTH,
    best_rate,
    tries_of,
)


@given(st.lists(st.floats(0.0, 10.0), min_size=len(RATES), max_size=len(RATES)), st.integers(0, len(RATES) - 1))
def test_the_rate_is_no_worse_than_its_neighbours_and_each_is_tried_once(losses: list[float], first: int) -> None:
    asked = list[float]()

    def held(rate: float) -> float:
        asked.append(rate)
        return losses[RATES.index(rate)]

    found = round(best_rate(held, first, 8) / LONGER, 10)
    best = [round(rate, 10) for rate in RATES].index(found)
    assert len(asked) == len(set(asked))
    assert RATES[first] in asked[:2]
    for neighbour in (best - 1, best + 1):
        if 0 <= neighbour < len(RATES):
            assert losses[best] <= losses[neighbour]


@pytest.mark.parametrize(("share", "taken"), [(0.99 * WORTH, USUAL - 1), (1.01 * WORTH, USUAL), (1.5, USUAL)])
def test_a_rate_below_the_usual_one_must_be_much_better_where_samples_speak_for_the_dense(
    share: float, taken: int
) -> None:
    losses = {RATES[USUAL + 1]: 1.1, RATES[USUAL]: 1.0, RATES[USUAL - 1]: share, RATES[USUAL - 2]: 0.9 * share}
    assert best_rate(losses.__getitem__, FIRST_RATE, 8, near=True) == pytest.approx(LONGER * RATES[taken])
    least = min(losses, key=lambda rate: losses[rate]) if share < 1 else RATES[USUAL]
    losses[RATES[0]] = 5.0
    assert best_rate(losses.__getitem__, FIRST_RATE, 8) == pytest.approx(LONGER * least)


def test_rates_that_diverge_are_left_for_lower_ones() -> None:
    found = best_rate(lambda rate: math.inf if rate > 0.0005 else 1.0, len(RATES) - 1, 8)
    assert found == pytest.approx(LONGER * 0.0002)


def test_rates_that_leave_nothing_of_the_network_are_left_for_lower_ones_unless_all_do() -> None:
    """Among losses that are all those of nothing the least is no sign of anything."""
    losses = dict(zip(RATES, [0.9, 0.8, 0.7, 2.3, 2.0, 2.3], strict=True))
    assert best_rate(losses.__getitem__, FIRST_RATE, 8, nothing=2.0) == pytest.approx(LONGER * RATES[2])
    assert best_rate(losses.__getitem__, FIRST_RATE, 8) == pytest.approx(LONGER * RATES[FIRST_RATE])
    assert best_rate(losses.__getitem__, FIRST_RATE, 8, nothing=0.1) == pytest.approx(LONGER * RATES[FIRST_RATE])


@pytest.mark.parametrize(
    ("losses", "taken"),
    [((math.inf, math.inf), FIRST_RATE - 2), ((3.0, 2.5), FIRST_RATE - 2), ((math.inf, 2.0), FIRST_RATE - 1)],
)
def test_below_rates_that_diverge_one_that_is_not_tried_any_more_is_taken(
    losses: tuple[float, ...], taken: int
) -> None:
    told = iter(losses)
    found = best_rate(lambda _: next(told, None), FIRST_RATE, 2, nothing=2.0)
    assert found == pytest.approx(LONGER * RATES[taken])


def test_where_the_cuts_of_every_try_leave_nothing_no_rate_is_blamed() -> None:
    """At 99% a short run ends at the loss of nothing with any rate."""
    told = iter([2.01, 2.03])
    assert best_rate(lambda _: next(told, None), FIRST_RATE, 2, nothing=2.0) == pytest.approx(
        LONGER * RATES[FIRST_RATE]
    )
    told = iter([2.03, 2.01])
    found = best_rate(lambda _: next(told, None), FIRST_RATE, 2, nothing=2.0)
    assert found == pytest.approx(LONGER * RATES[FIRST_RATE - 1])  # neighbours are compared as ever


def test_of_rates_that_all_diverge_the_lowest_is_left() -> None:
    assert best_rate(lambda _: math.inf, FIRST_RATE, 8) == pytest.approx(LONGER * RATES[0])
    losses = dict(zip(RATES, [3.0, 3.0, 2.5, 3.0, math.inf, 9.0], strict=True))
    found = best_rate(losses.__getitem__, FIRST_RATE, 8, nothing=2.0)
    assert found == pytest.approx(LONGER * RATES[2])  # neighbours are compared as ever


def test_where_one_try_is_all_nothing_is_tried() -> None:
    def never(_: float) -> float:
        raise AssertionError

    assert best_rate(never, FIRST_RATE, 1) == LONGER * RATES[FIRST_RATE]


def test_rates_that_are_not_tried_any_more_are_not_taken() -> None:
    told = iter([3.0, 2.0, 1.0])
    found = best_rate(lambda _: next(told, None), FIRST_RATE, 3)
    assert found == pytest.approx(LONGER * RATES[FIRST_RATE - 2])


@pytest.mark.parametrize(("gradients", "batch"), [(240_000, 64), (1600, 8), (640, 64), (100, 10)])
def test_tries_take_their_share_of_the_gradients(gradients: int, batch: int) -> None:
    steps, tries = tries_of(gradients, batch)
    assert steps * batch * tries <= SEARCHED * gradients
    assert steps >= 20
    assert steps == 20 or steps * batch <= TRIED * gradients
