"""No update: what is kept stays."""

import numpy as np
from toys import make_toy
from updates import apply

from brainsurgeon.engine.update import Keep


def test_keep_changes_nothing_but_the_pruned_weights() -> None:
    toy = make_toy(1)
    expected = np.zeros(toy.size)
    expected[[2, 7]] = -toy.w[[2, 7]]
    np.testing.assert_array_equal(apply(Keep(), toy, [2, 7]), expected)
