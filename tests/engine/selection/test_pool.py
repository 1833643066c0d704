"""A pool knows the change of 2Q of every swap in it exactly, with the curvature as stiff as it was asked for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import Toy, indices_of, mask_of, toys

from brainsurgeon.engine.selection.pool import Pool, extremes, shift


def stiffer(toy: Toy, stiffness: float) -> Toy:
    """The same weights with H multiplied."""
    return Toy(toy.G * np.sqrt(stiffness), toy.w, toy.damping * stiffness, toy.blocks)


@given(toys(), st.integers(0, 1000), st.sampled_from([1.0, 0.25, 8.0]))
def test_the_change_of_a_swap_is_that_of_the_model_at_its_stiffness(toy: Toy, seed: int, stiffness: float) -> None:
    """Before any swap and after some: α, β and γ all carry the stiffness."""
    rng = np.random.default_rng(seed)
    pruned = torch.from_numpy(rng.permutation(toy.size) < max(1, toy.size // 2))
    hard = stiffer(toy, stiffness).quadratic()
    pool = Pool.gather(toy.quadratic(), hard.drift(hard.pressure(pruned)), torch.arange(toy.size), stiffness)
    for _ in range(3):
        inside, outside = indices_of(pruned), indices_of(~pruned)
        if not inside or not outside:
            return
        cost = hard.cost(pruned)
        for i in inside:
            found = pool.change(i, np.array(outside))
            for j, change in zip(outside, found, strict=True):
                swapped = mask_of([k for k in inside if k != i] + [j], toy.size)
                assert change == pytest.approx(2 * (hard.cost(swapped) - cost), abs=1e-8)
        i, j = inside[0], outside[-1]
        pool.swap(i, j)
        pruned = mask_of([k for k in inside if k != i] + [j], toy.size)


@given(toys(), st.integers(0, 1000), st.sampled_from([1.0, 8.0]))
def test_descending_takes_swaps_that_improve_in_all(toy: Toy, seed: int, stiffness: float) -> None:
    pruned = torch.from_numpy(np.random.default_rng(seed).permutation(toy.size) < max(1, toy.size // 2))
    if bool(pruned.all()):
        return
    hard = stiffer(toy, stiffness).quadratic()
    drift = hard.drift(hard.pressure(pruned))
    members, count = extremes(
        hard.impact(drift, pruned), *((pruned == s).nonzero().squeeze(1) for s in (True, False)), 99
    )
    swaps = Pool.gather(toy.quadratic(), drift, members, stiffness).descend(count, 1e-6, 99)
    cost, now = hard.cost(pruned), pruned.clone()
    for back, gone in swaps:
        assert bool(now[back])
        assert not bool(now[gone])
        now[back], now[gone] = False, True
        assert hard.cost(now) <= cost - 0.5e-6 + 1e-9
        cost = hard.cost(now)
    moved = shift(hard, swaps)
    torch.testing.assert_close(moved, hard.removed(now) - hard.removed(pruned))


def test_extremes_are_the_dearest_inside_and_the_cheapest_outside() -> None:
    impact = torch.tensor([5.0, 1.0, 3.0, 9.0, 0.0, 4.0])
    members, count = extremes(impact, torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5]), 2)
    assert (members.tolist(), count) == ([0, 2, 4, 5], 2)
