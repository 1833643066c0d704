"""Magnitude: the smallest weights go."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from toys import Toy, indices_of, toys

from brainsurgeon.engine.selection import Magnitude


@given(toys(), st.data())
def test_magnitude_takes_the_smallest(toy: Toy, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, toy.size))
    found = indices_of(Magnitude()(toy.problem(count)))
    assert found == sorted(np.argsort(np.abs(toy.w), kind="stable")[:count].tolist())
