"""The search for the highest sparsity at which something holds."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.pruning.bracket import FIRST, Bracket, search

resolutions = st.floats(0.01, 0.5)


@given(st.floats(0.0, 1.0), st.floats(0.5, 0.999), resolutions)
def test_it_finds_the_edge_of_a_monotone_property(edge: float, most: float, resolution: float) -> None:
    tried: list[float] = []

    def holds(sparsity: float, bracket: Bracket) -> bool:
        assert bracket.low < sparsity
        assert bracket.high is None or sparsity < bracket.high
        assert bracket.tries_left() >= 1
        tried.append(sparsity)
        return sparsity <= edge

    found = search(holds, most, resolution)
    assert found.low <= edge or found.low == 0
    if found.high is None:
        assert found.low == most <= edge
    else:
        assert found.high > edge
        # Ends of the bracket are told apart to four decimals, and no further.
        narrow = (1 - found.low) / (1 - found.high) <= 1 + resolution
        assert narrow or found.high - found.low < 2.1e-4
    ladder = 1 + max(0, math.ceil(math.log2((1 - FIRST) / (1 - most)))) if most > FIRST else 1
    halvings = math.ceil(math.log2(math.log(10) / math.log(1 + resolution))) + 2
    assert len(tried) <= ladder + halvings
    assert len(tried) == len(set(tried))


@given(st.floats(0.0, 1.0), resolutions)
def test_it_foresees_the_most_tries_it_may_take(edge: float, resolution: float) -> None:
    left: list[int] = []

    def holds(sparsity: float, bracket: Bracket) -> bool:
        left.append(bracket.tries_left())
        return sparsity <= edge

    search(holds, 0.99, resolution)
    assert all(later < before for before, later in pairwise(left))
    assert left[0] >= len(left)


def test_the_tries_of_a_tenth() -> None:
    tried: list[float] = []
    found = search(lambda sparsity, _: tried.append(sparsity) or sparsity <= 0.96, 0.99, 0.1)  # type: ignore[func-returns-value]
    assert tried == [0.9, 0.95, 0.975, 0.9646, 0.9579, 0.9614]
    assert (found.low, found.high) == (0.9579, 0.9614)


def test_the_highest_sparsity_is_tried_and_no_higher() -> None:
    assert search(lambda sparsity, _: True, 0.99, 0.1) == Bracket(0.99, 0.1, 0.99, None)
    assert Bracket(0.5, 0.1).next() == 0.5
    assert Bracket(0.5, 0.1).tries_left() == pytest.approx(4, abs=1)
