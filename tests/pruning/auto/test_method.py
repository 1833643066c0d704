"""Settings of Auto, and what they come to."""

from __future__ import annotations

from typing import Any

import pytest
from cases import seeded
from torch import nn

from brainsurgeon import BrainsurgeonError, prune
from brainsurgeon.pruning.auto.method import Auto


def test_samples_are_needed_and_settings_are_checked() -> None:
    model = seeded(lambda: nn.Linear(4, 3), 0)
    with pytest.raises(BrainsurgeonError, match="needs training samples"):
        prune(model, None, 0.5, "auto")
    for settings, words in (({"effort": "much"}, "effort must be one of"), ({"max_seconds": 0}, "must be positive")):
        with pytest.raises(BrainsurgeonError, match=words):
            Auto(**settings)


def test_gradients_are_the_efforts_unless_they_are_given() -> None:
    found = [Auto(effort=effort).gradients for effort in ("quick", "standard", "thorough")]
    assert found[0] == 0
    assert found == sorted(found)
    assert Auto(effort="quick", max_gradients=500).gradients == 500


@pytest.mark.parametrize("settings", [{"max_gradients": 0}, {"max_gradients": 2.5}, {"repair": "biases"}])
def test_limits_and_repairs_of_another_kind_are_refused(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(BrainsurgeonError, match=f"{name} must be"):
        Auto(**settings)
