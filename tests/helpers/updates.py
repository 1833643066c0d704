"""An update applied to a toy, as an array."""

import numpy as np
from hypothesis import strategies as st
from toys import Toy, ToyJudge, mask_of

from brainsurgeon.engine.problem import Update

some_weights = st.sets(st.integers(0, 11))


def apply(update: Update, toy: Toy, P: list[int], judge: ToyJudge | None = None) -> np.ndarray:
    """δw for the pruned weights P."""
    return update(toy.problem(len(P), judge), mask_of(P, toy.size)).double().numpy()
