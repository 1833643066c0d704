"""Counts of layers: exact in sum, whole blocks, and the mean sparsity where there is no error to go by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.engine.budget import Share
from brainsurgeon.pruning.layerwise.allocate import ErrorCurve
from brainsurgeon.pruning.layerwise.counts import rounded, shared_counts


def never() -> list[ErrorCurve]:
    raise AssertionError


def curve(name: str, size: int, weight: float) -> ErrorCurve:
    return ErrorCurve(name, size, (0.3, 0.5, 0.7, 0.9), tuple(weight * s**3 for s in (0.3, 0.5, 0.7, 0.9)))


@pytest.mark.parametrize(("counts", "area"), [([17, 15], 16), ([5, 6, 5], 4), ([4, 8], 4), ([3, 1], 1)])
def test_rounded_counts_keep_their_sum_and_their_order_of_size(counts: list[int], area: int) -> None:
    found = rounded(counts, area)
    assert sum(found) == sum(counts)
    assert all(count % area == 0 and abs(count - asked) < area for count, asked in zip(found, counts, strict=True))


def test_a_layer_with_a_count_of_its_own_needs_no_error() -> None:
    shares = [Share((("a", 0, 40),), 7), Share((("b", 40, 60),), 11)]
    assert shared_counts(shares, {"a"}, never) == ({"a": 7}, {"b": 11})


@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0.01, 100)), min_size=2, max_size=6),
    st.integers(0, 3),
    st.sampled_from([1, 4]),
    st.floats(0, 1),
)
def test_counts_add_up_in_whole_blocks(
    sized: list[tuple[int, float]], without: int, area: int, sparsity: float
) -> None:
    names = [f"layer{number}" for number in range(len(sized))]
    layers = tuple((name, 0, 4 * blocks) for name, (blocks, _) in zip(names, sized, strict=True))
    total = sum(size for _, _, size in layers)
    share = Share(layers, int(sparsity * total) // area * area)
    known = names[without:]
    curves = [curve(n, 4 * b, w) for n, (b, w) in zip(names, sized, strict=True) if n in known]
    own, others = shared_counts([share], known, lambda: curves, area)
    found = own | others
    assert set(own) == set(known)
    assert sum(found.values()) == share.count
    assert all(0 <= found[name] <= size for name, _, size in layers)
    assert all(own[name] % area == 0 for name in own) or not known


def test_what_the_loss_feels_less_loses_more_and_a_layer_without_errors_the_mean() -> None:
    layers = (("dear", 0, 1000), ("cheap", 1000, 1000), ("other", 2000, 1000))
    curves = [curve("dear", 1000, 100.0), curve("cheap", 1000, 1.0)]
    own, others = shared_counts([Share(layers, 1500)], {"dear", "cheap"}, lambda: curves)
    assert others == {"other": 500}
    assert own["cheap"] > 2 * own["dear"]
    assert sum(own.values()) == 1000
