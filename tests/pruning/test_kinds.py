"""Settings of a wrong kind are refused by name before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.methods import make_method


@pytest.mark.parametrize(
    ("method", "key", "value", "words"),
    [
        ("cbs", "num_draws", "x", "num_draws must be a whole number"),
        ("cbs", "num_draws", 1.5, "num_draws must be a whole number"),
        ("cbs", "num_draws", True, "num_draws must be a whole number"),
        ("cbs", "num_draws", 10**30, "num_draws must be a whole number"),
        ("cbs", "stiffness", [], "stiffness must be a number"),
        ("cbs", "first_order", "yes", "first_order must be True or False"),
        ("cbs", "start", 3, "start must be something that can be called"),
        ("staged", "max_seconds", "soon", "max_seconds must be a number or None"),
        ("staged", "max_samples", [], "max_samples must be a whole number or None"),
    ],
)
def test_a_wrong_kind_is_refused(method: str, key: str, value: Any, words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        make_method(method, {key: value})


def test_numbers_of_other_libraries_pass() -> None:
    made = make_method("cbs", {"num_draws": np.int64(5), "stiffness": np.float32(0.5)})
    assert made.selection.start.num_draws == 5
