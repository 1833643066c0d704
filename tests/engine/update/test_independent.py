"""WoodFisher's update against the sum of single ones."""

import numpy as np
import reference
from hypothesis import given
from toys import Toy, dense, toys
from updates import apply, some_weights

from brainsurgeon.engine.update import Independent


@given(toys(), some_weights)
def test_the_independent_update_is_the_sum_of_single_ones(toy: Toy, chosen: set[int]) -> None:
    P = sorted(i for i in chosen if i < toy.size)
    expected = reference.independent_step(dense(toy), toy.w, P)
    np.testing.assert_allclose(apply(Independent(), toy, P), expected, rtol=1e-6, atol=1e-8)
