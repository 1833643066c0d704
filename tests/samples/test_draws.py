"""Draws with weights against their counts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.samples.draws import drawn, generator_of


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_without_weights_each_is_drawn_once_as_the_generator_says() -> None:
    assert torch.equal(drawn(50, seeded(3)), torch.randperm(50, generator=seeded(3)))


@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=60), st.integers(0, 1000))
def test_each_is_drawn_as_often_as_its_weight_rounded_down_or_up(raw: list[float], seed: int) -> None:
    weights = torch.tensor(raw, dtype=torch.float64)
    weights = weights / weights.mean() if weights.sum() > 1e-3 else torch.ones_like(weights)
    found = drawn(len(raw), seeded(seed), weights)
    counts = torch.bincount(found, minlength=len(raw)).double()
    assert len(found) == len(raw)
    assert (counts >= (weights - 1e-6).floor()).all()
    assert (counts <= (weights + 1e-6).ceil()).all()
    assert torch.equal(found, drawn(len(raw), seeded(seed), 7.0 * weights))  # only their ratios tell


def test_even_weights_draw_each_once_in_an_order_that_is_random() -> None:
    first, second = (drawn(40, seeded(seed), torch.full((40,), 2.5)) for seed in (0, 1))
    assert torch.equal(first.sort().values, torch.arange(40))
    assert not torch.equal(first, second)
    assert not torch.equal(first, torch.arange(40))


def test_on_average_each_is_drawn_as_often_as_its_weight() -> None:
    weights = torch.tensor([0.1, 0.4, 1.0, 2.2, 1.3])
    counts = sum(torch.bincount(drawn(5, seeded(seed), weights), minlength=5) for seed in range(4000))
    assert (counts / 4000).tolist() == pytest.approx(weights.tolist(), abs=0.04)  # type: ignore[union-attr]
    places = torch.stack([drawn(5, seeded(seed), weights) for seed in range(4000)])
    assert ((places == 3).double().mean(0) - 2.2 / 5).abs().max() < 0.04  # no place is preferred


def test_a_weight_of_nothing_is_never_drawn() -> None:
    weights = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0])
    for seed in range(50):
        assert set(drawn(5, seeded(seed), weights).tolist()) <= {1, 3}


@pytest.mark.parametrize("seed", [0, 5, -1, 2**63, 2**64 - 1])
def test_a_seed_that_torch_takes_is_taken_as_it_is(seed: int) -> None:
    assert torch.equal(torch.rand(3, generator=generator_of(seed)), torch.rand(3, generator=seeded(seed)))


def test_larger_seeds_go_round() -> None:
    assert generator_of(2**64 + 7).initial_seed() == 7
    assert generator_of(1_000_003 * 2**64 - 1).initial_seed() == 2**64 - 1
