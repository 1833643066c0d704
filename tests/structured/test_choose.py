"""How many units go: beside every choice there is, and the rules that hold for each."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shrinking import UNITS, chain

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.structured.choose import Curve, choose_counts


def curve(costs: list[float]) -> Curve:
    return Curve(tuple(range(len(costs))), tuple(costs))


costs_of = st.lists(st.floats(0.01, 5.0), min_size=5, max_size=5)


@settings(max_examples=60, deadline=None)
@given(costs_of, st.lists(st.floats(0.01, 5.0), min_size=4, max_size=4), st.floats(0.15, 0.95))
def test_the_target_is_met_and_nothing_more_could_stay(one: list[float], other: list[float], share: float) -> None:
    size, curves = chain(), [curve(sorted(one)), curve(sorted(other))]
    target = int(share * size.count(UNITS))
    gone = choose_counts(curves, UNITS, size, target, 0.0, 1)
    kept = [units - count for units, count in zip(UNITS, gone, strict=True)]
    assert size.count(kept) <= target
    for group, count in enumerate(gone):
        if count:
            more = [*kept]
            more[group] += 1
            assert size.count(more) > target


def test_the_cheapest_way_is_near_the_best_of_all() -> None:
    size = chain()
    curves = [curve([0.1, 0.2, 0.4, 0.8, 1.6]), curve([0.3, 0.3, 0.3, 5.0])]
    for share in (0.3, 0.5, 0.7):
        target = int(share * size.count(UNITS))
        gone = choose_counts(curves, UNITS, size, target, 0.0, 1)
        cost = sum(own.sums[count] for own, count in zip(curves, gone, strict=True))
        choices = [c for c in product(range(6), range(5)) if size.count([6 - c[0], 5 - c[1]]) <= target]
        best = min(curves[0].sums[a] + curves[1].sums[b] for a, b in choices)
        assert cost <= 1.5 * best


def test_a_group_that_costs_nothing_goes_first() -> None:
    gone = choose_counts([curve([0.0] * 5), curve([1.0] * 4)], UNITS, chain(), 80, 0.0, 1)
    assert gone[0] > 0 == gone[1]


def test_multiples_and_the_least_share_are_kept() -> None:
    gone = choose_counts([curve([0.1] * 5), curve([9.0] * 4)], UNITS, chain(), 70, 0.0, 2)
    assert all(not count or (units - count) % 2 == 0 for units, count in zip(UNITS, gone, strict=True))
    gone = choose_counts([curve([0.1] * 5), curve([9.0] * 4)], UNITS, chain(), 60, 0.5, 1)
    assert all(units - count >= 0.5 * units for units, count in zip(UNITS, gone, strict=True))


def test_a_target_that_no_choice_reaches_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="the smallest network that the groups allow has"):
        choose_counts([curve([0.1] * 5), curve([9.0] * 4)], UNITS, chain(), 10, 0.5, 1)
