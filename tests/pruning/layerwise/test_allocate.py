"""Where the sparsity goes: exact sums, and next to the best that any allocation can have."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.layerwise.allocate import ErrorCurve, allocate

AT = (0.3, 0.5, 0.7, 0.85, 0.95)


def steep(name: str, size: int, level: float, rate: float) -> ErrorCurve:
    """An error that grows as level · s² e^(rate s): convex."""
    return ErrorCurve(name, size, AT, tuple(level * s**2 * math.exp(rate * s) for s in AT))


def curves(least: int = 1) -> st.SearchStrategy[list[ErrorCurve]]:
    one = st.tuples(st.integers(least, 400), st.floats(-12, 6), st.floats(0.5, 8))
    return st.lists(one, min_size=1, max_size=6).map(
        lambda drawn: [steep(str(k), n, 10**level, rate) for k, (n, level, rate) in enumerate(drawn)]
    )


def jagged(least: int = 1) -> st.SearchStrategy[list[ErrorCurve]]:
    """Errors as measurements give them: in any order, zero among them."""
    errors = st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e6)), min_size=len(AT), max_size=len(AT))
    one = st.tuples(st.integers(least, 400), errors)
    return st.lists(one, min_size=1, max_size=6).map(
        lambda drawn: [ErrorCurve(str(k), n, AT, tuple(e)) for k, (n, e) in enumerate(drawn)]
    )


def test_what_one_more_weight_costs_never_falls() -> None:
    """For errors in any order, zero among them; the multiplier is found by bisection. First here: it fails at once."""
    generator = np.random.default_rng(0)
    for most in (0.5, 0.9, 0.98, 1.0):
        errors = np.where(generator.random(len(AT)) < 0.2, 0.0, 10 ** generator.uniform(-6, 3, len(AT)))
        grid, slopes = ErrorCurve("a", 50, AT, tuple(errors.tolist())).slopes(most)
        assert grid[-1] == pytest.approx(most)
        assert bool((np.diff(slopes) >= 0).all())


@given(st.one_of(curves(), jagged()), st.floats(0, 1))
def test_counts_add_up_exactly_and_fit_into_the_layers(drawn: list[ErrorCurve], share: float) -> None:
    total = round(share * sum(curve.size for curve in drawn))
    counts = allocate(drawn, total)
    assert sum(counts) == total
    assert all(0 <= count <= curve.size for count, curve in zip(counts, drawn, strict=True))


@given(st.one_of(curves(), jagged()), st.floats(0, 1), st.floats(0.5, 1))
def test_no_layer_loses_more_than_its_most_unless_the_total_asks_for_it(
    drawn: list[ErrorCurve], share: float, most: float
) -> None:
    size = sum(curve.size for curve in drawn)
    total = round(share * size)
    counts = allocate(drawn, total, most)
    allowed = max(most, total / size)
    assert all(count <= math.ceil(allowed * c.size + 1e-6) for count, c in zip(counts, drawn, strict=True))


@given(st.integers(1, 5), st.integers(4, 300), st.floats(-6, 3), st.floats(0.5, 8), st.floats(0, 1))
def test_equal_curves_have_equal_shares(number: int, size: int, level: float, rate: float, share: float) -> None:
    drawn = [steep(str(k), size, 10**level, rate) for k in range(number)]
    counts = allocate(drawn, round(share * number * size))
    assert max(counts) - min(counts) <= 1


@given(st.one_of(curves(), jagged()), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_total_takes_no_less_of_any_layer(drawn: list[ErrorCurve], one: float, other: float) -> None:
    """To within the one weight that rounding moves."""
    size = sum(curve.size for curve in drawn)
    less, more = sorted((round(one * size), round(other * size)))
    if more > 0.9 * size:  # beyond that layers may lose more, and the tables change
        return
    for few, many in zip(allocate(drawn, less), allocate(drawn, more), strict=True):
        assert many >= few - 1


@given(st.integers(1, 3), st.floats(-3, 3))
def test_a_layer_whose_error_costs_more_loses_less(seed: int, level: float) -> None:
    cheap, dear = steep("cheap", 200, 10**level, 2 + seed), steep("dear", 200, 30 * 10**level, 2 + seed)
    counts = allocate([cheap, dear], 200)
    assert counts[0] > counts[1]


def error_of(curve: ErrorCurve, count: int) -> float:
    """The error of a count on the same curve: log E linear between the sparsities, ∝ s² below the first."""
    sparsity = count / curve.size
    if not count:
        return 0.0
    if sparsity < AT[0]:
        return curve.errors[0] * (sparsity / AT[0]) ** 2
    if sparsity > AT[-1]:
        rise = math.log(curve.errors[-1] / curve.errors[-2]) / (AT[-1] - AT[-2])
        return curve.errors[-1] * math.exp(rise * (sparsity - AT[-1]))
    return math.exp(np.interp(sparsity, AT, np.log(curve.errors)))


@given(
    st.lists(st.tuples(st.integers(3, 14), st.floats(-2, 2), st.floats(3, 8)), min_size=2, max_size=3), st.floats(0, 1)
)
def test_on_tiny_convex_curves_it_is_as_good_as_trying_everything(
    drawn: list[tuple[int, float, float]], share: float
) -> None:
    """Up to the rounding of one weight a layer: no worse than the best for as many weights less a few."""
    tried = [steep(str(k), n, 10**level, rate) for k, (n, level, rate) in enumerate(drawn)]
    most = [math.floor(0.98 * curve.size) for curve in tried]
    total = min(round(share * sum(c.size for c in tried)), sum(most))
    counts = allocate(tried, total)
    found = sum(error_of(curve, count) for curve, count in zip(tried, counts, strict=True))
    best = min(
        sum(error_of(curve, count) for curve, count in zip(tried, choice, strict=True))
        for choice in itertools.product(*(range(curve.size + 1) for curve in tried))
        if sum(choice) == total
    )
    step = max(error_of(c, min(n + 1, c.size)) - error_of(c, n) for c, n in zip(tried, counts, strict=True))
    assert found <= best + 2 * step + 1e-9


@given(
    st.tuples(st.integers(20, 60), st.integers(100, 400)),
    st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
    st.tuples(st.floats(7, 12), st.floats(7, 12)),
    st.floats(0.05, 0.95),
)
def test_layers_of_any_size_share_as_the_best_split_does(
    sizes: tuple[int, int], levels: tuple[float, float], rates: tuple[float, float], share: float
) -> None:
    """What counts is what one more weight costs, not one more part of the layer."""
    pair = [
        ErrorCurve(str(k), sizes[k], AT, tuple(10 ** levels[k] * math.exp(rates[k] * s) for s in AT)) for k in (0, 1)
    ]
    total = round(share * sum(sizes))
    most = [math.floor(0.98 * size) for size in sizes]
    splits = [(n, total - n) for n in range(total + 1) if n <= most[0] and total - n <= most[1]]
    assume(splits)
    best = min(sum(error_of(c, n) for c, n in zip(pair, split, strict=True)) for split in splits)
    found = sum(error_of(c, n) for c, n in zip(pair, allocate(pair, total), strict=True))
    assert found <= 1.03 * best + 1e-12


def test_at_a_high_sparsity_a_small_dear_layer_is_still_spared() -> None:
    """With 0.98 for every layer there would be nothing left to choose."""
    large, small = steep("large", 10_000, 1.0, 5.0), steep("small", 100, 100.0, 5.0)
    counts = allocate([large, small], 9_898)  # 98% of all
    assert counts[1] < 80
    assert counts[0] <= 0.996 * 10_000 + 1


@given(st.one_of(curves(), jagged()), st.floats(0.5, 0.999))
def test_no_layer_is_lost_as_a_whole_unless_the_total_asks_for_it(drawn: list[ErrorCurve], share: float) -> None:
    total = round(share * sum(curve.size for curve in drawn))
    counts = allocate(drawn, total)
    spare = sum(min(curve.size - 1, math.floor(max(0.98, 1 - 0.2 * (1 - share)) * curve.size)) for curve in drawn)
    if total <= spare - len(drawn):
        assert all(count < curve.size for count, curve in zip(counts, drawn, strict=True))


def test_a_small_layer_that_costs_nothing_keeps_a_weight() -> None:
    large, small = steep("large", 5_000, 1.0, 9.0), steep("small", 72, 1e-9, 1.0)
    assert allocate([large, small], round(0.98 * 5_072))[1] <= 71


def test_a_total_beyond_the_layers_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="11 weights cannot be pruned of 10"):
        allocate([steep("a", 10, 1, 1)], 11)
