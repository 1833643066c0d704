"""WoodFisher: the weights of lowest statistic."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from toys import Toy, indices_of, make_toy, toys

from brainsurgeon.engine.selection import WoodFisher


@given(toys(), st.data())
def test_woodfisher_takes_the_lowest_statistic_of_the_dense_inverse(toy: Toy, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, toy.size))
    H = reference.block_diagonal(reference.fisher(toy.G, toy.damping), toy.blocks)
    scores = reference.woodfisher_scores(H, toy.w)
    assert indices_of(WoodFisher()(toy.problem(count))) == sorted(np.argsort(scores)[:count].tolist())


def test_one_weight_by_woodfisher_is_the_optimum_of_selection_and_update() -> None:
    """For a single weight the statistic is the joint cost, so brute force can do no better."""
    for seed in range(5):
        toy = make_toy(seed)
        H = reference.fisher(toy.G, toy.damping)
        cost, best = reference.best_joint(H, toy.w, 1)
        assert tuple(indices_of(WoodFisher()(toy.problem(1)))) == best
        assert reference.woodfisher_scores(H, toy.w)[best[0]] == pytest.approx(cost)
