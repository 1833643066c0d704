"""Block OBS on units: every number beside a dense least squares, and small cases beside all sets there are."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from brainsurgeon.engine.layer.units import Reader, Removal, removal_cost, removal_order, swapped
from brainsurgeon.errors import BrainsurgeonError

UNITS = 7


def make_reader(seed: int, rows: int, each: int, constant: bool = False) -> Reader:
    generator = torch.Generator().manual_seed(seed)
    size = UNITS * each + constant
    mix = torch.randn(size, size, generator=generator, dtype=torch.float64)
    x = torch.randn(3 * size, size, generator=generator, dtype=torch.float64) @ mix
    moments = x.T @ x / len(x) + 0.1 * torch.eye(size, dtype=torch.float64)
    columns = torch.randperm(UNITS * each, generator=generator).view(UNITS, each)
    return Reader(torch.randn(rows, size, generator=generator, dtype=torch.float64), moments, columns)


def make_readers(seed: int) -> list[Reader]:
    """Two readers with blocks of other sizes; the second has a constant input, which no unit owns."""
    return [make_reader(seed, 4, 2), make_reader(seed + 100, 3, 1, constant=True)]


def dense_fit(reader: Reader, units: tuple[int, ...]) -> Tensor:
    """The best weights without the units' columns, by a solve of the whole normal equations."""
    gone = set(reader.columns[list(units)].reshape(-1).tolist()) if units else set()
    kept = torch.tensor([i for i in range(len(reader.moments)) if i not in gone])
    fitted = torch.zeros_like(reader.weights)
    right = (reader.weights @ reader.moments)[:, kept]
    fitted[:, kept] = torch.linalg.solve(reader.moments[kept][:, kept], right.T).T
    return fitted


def dense_cost(readers: list[Reader], units: tuple[int, ...]) -> float:
    total = 0.0
    for reader in readers:
        error = dense_fit(reader, units) - reader.weights
        total += float(((error @ reader.moments) * error).sum()) / 2
    return total


def mask(units: tuple[int, ...]) -> Tensor:
    return torch.isin(torch.arange(UNITS), torch.tensor(units))


@pytest.mark.parametrize("seed", range(3))
def test_the_cost_of_a_set_is_that_of_the_least_squares_without_it(seed: int) -> None:
    readers = make_readers(seed)
    for units in combinations(range(UNITS), 3):
        assert removal_cost(readers, mask(units)) == pytest.approx(dense_cost(readers, units), rel=1e-9)
    assert removal_cost(readers, mask(())) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_units_that_go_and_come_back_leave_exact_costs_and_weights(seed: int) -> None:
    readers = make_readers(seed)
    state = Removal(readers)
    for unit in (1, 4, 5, 0):
        state.remove(unit)
    for unit in (4, 0):
        state.restore(unit)
    costs = state.costs()
    for unit in range(UNITS):
        if unit in (1, 5):
            assert costs[unit] == torch.inf
        else:
            expected = dense_cost(readers, (1, 5, unit)) - dense_cost(readers, (1, 5))
            assert float(costs[unit]) == pytest.approx(expected, rel=1e-8)
    for reader, fitted in zip(readers, state._fitted, strict=True):
        torch.testing.assert_close(fitted, dense_fit(reader, (1, 5)), rtol=1e-9, atol=1e-10)


def test_the_order_takes_the_cheapest_unit_each_time_and_leaves_one() -> None:
    readers = make_readers(3)
    order, costs = removal_order(readers)
    assert len(order) == UNITS - 1 == len(set(order))
    gone: tuple[int, ...] = ()
    for unit, cost in zip(order, costs, strict=True):
        grown = {k: dense_cost(readers, (*gone, k)) for k in range(UNITS) if k not in gone}
        assert unit == min(grown, key=grown.__getitem__)
        assert cost == pytest.approx(grown[unit] - dense_cost(readers, gone), rel=1e-8)
        gone = (*gone, unit)


@pytest.mark.parametrize("seed", range(6))
def test_swaps_reach_a_set_that_no_one_swap_improves_and_keep_the_count(seed: int) -> None:
    readers = make_readers(seed)
    start = mask((0, 1, 2))
    found = swapped(readers, start, sweeps=20)
    units = tuple(found.nonzero().squeeze(1).tolist())
    assert len(units) == 3
    cost = dense_cost(readers, units)
    assert cost <= removal_cost(readers, start) * (1 + 1e-9)
    for out in units:
        for other in set(range(UNITS)) - set(units):
            assert dense_cost(readers, (*(set(units) - {out}), other)) >= cost * (1 - 1e-8)


def test_swaps_find_the_best_set_from_a_bad_one() -> None:
    readers = make_readers(1)
    best = min(dense_cost(readers, units) for units in combinations(range(UNITS), 3))
    worst = max(combinations(range(UNITS), 3), key=lambda units: dense_cost(readers, units))
    assert removal_cost(readers, swapped(readers, mask(worst), sweeps=20)) == pytest.approx(best, rel=1e-8)


def test_moments_that_are_no_moments_are_refused() -> None:
    reader = make_reader(0, 2, 1)
    with pytest.raises(BrainsurgeonError, match="raise the damping"):
        removal_order([Reader(reader.weights, -reader.moments, reader.columns)])
