"""Weights that come back: exact counts, worthwhile exchanges alone, against the dense float64 twin."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.curvature import Fisher
from brainsurgeon.mask import Budget
from brainsurgeon.quadratic import QuadraticModel
from brainsurgeon.revise import MOST_RETURNED, revise

SIZE = 60


def model(seed: int) -> tuple[QuadraticModel, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randn(SIZE, 20, generator=generator, dtype=torch.float64)
    pruned = torch.rand(SIZE, generator=generator) < 0.5
    weights = torch.randn(SIZE, generator=generator, dtype=torch.float64).masked_fill(pruned, 0.0)
    slope = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    return QuadraticModel(weights, [slice(0, SIZE)], [Fisher(columns, 0.1)]), pruned, slope


@given(st.integers(0, 500), st.floats(1e-3, 5.0))
def test_counts_stay_exact_in_every_group(seed: int, length: float) -> None:
    quadratic, pruned, slope = model(seed)
    groups = (torch.arange(25), torch.arange(25, SIZE))
    budget = Budget(groups, tuple(int(pruned[group].sum()) for group in groups))
    revised = revise(quadratic, pruned, slope, length, budget)
    budget.check(revised)
    for group in groups:
        assert int((pruned & ~revised)[group].sum()) <= MOST_RETURNED * int((~pruned)[group].sum())


@pytest.mark.parametrize("seed", range(5))
def test_only_exchanges_that_save_more_than_they_cost_are_made(seed: int) -> None:
    quadratic, pruned, slope = model(seed)
    budget = Budget((torch.arange(SIZE),), (int(pruned.sum()),))
    hessian = quadratic.curvatures[0].submatrix(torch.arange(SIZE), torch.arange(SIZE))
    kept = (~pruned).nonzero().squeeze(1)
    inside = torch.linalg.inv(hessian[kept][:, kept])
    revised = revise(quadratic, pruned, slope, 0.5, budget)
    back, gone = (pruned & ~revised).nonzero().squeeze(1), (revised & ~pruned).nonzero().squeeze(1)
    cross = hessian[back][:, kept]
    savings = 0.375 * slope[back] ** 2 / (hessian.diagonal()[back] - ((cross @ inside) * cross).sum(1))
    costs = (quadratic.w[kept] ** 2 / inside.diagonal() / 2)[[int((kept == k).nonzero()) for k in gone]]
    assert back.numel() == gone.numel() > 0
    assert bool((savings.sort().values > costs.sort().values).all())


def test_a_steep_weight_comes_back_for_a_tiny_one_and_none_where_nothing_is_to_be_saved() -> None:
    quadratic, pruned, slope = model(1)
    budget = Budget((torch.arange(SIZE),), (int(pruned.sum()),))
    steep, tiny = int(pruned.nonzero()[0]), int((~pruned).nonzero()[0])
    weights = quadratic.weights.clone()
    weights[tiny] = 1e-6
    quadratic = QuadraticModel(weights, quadratic.blocks, quadratic.curvatures)
    only = torch.zeros_like(slope)
    only[steep] = 100.0
    revised = revise(quadratic, pruned, only, 0.5, budget)
    assert (bool(revised[steep]), bool(revised[tiny])) == (False, True)
    assert torch.equal(revise(quadratic, pruned, torch.zeros_like(slope), 0.5, budget), pruned)
