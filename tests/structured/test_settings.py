"""Settings of a shrinking, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.structured.settings import ShrinkSettings
from brainsurgeon.structured.shrink import shrink


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "give one target"),
        ({"macs": 0.5, "units": 0.5}, "give one target"),
        ({"macs": 1.5}, "shares between 0 and 1"),
        ({"macs": "half"}, "macs must be a number"),
        ({"macs": 0.5, "multiple": 0}, "multiple must be a whole number"),
        ({"macs": 0.5, "damping": 0.0}, "damping positive"),
        ({"macs": 0.5, "sparsity": 0.5}, "shrink has no setting 'sparsity'"),
    ],
)
def test_bad_settings_are_refused_before_any_work(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(BrainsurgeonError, match=match):
        shrink(nn.Linear(2, 2), None, **settings)


def test_the_share_is_that_of_the_target_that_was_given() -> None:
    assert ShrinkSettings(parameters=0.25).share == 0.25
    assert ShrinkSettings.of({"units": 1.0, "sweeps": 0}).to_dict()["sweeps"] == 0
    for name in ("max_samples", "fit_samples", "batch", "reported"):
        with pytest.raises(BrainsurgeonError, match=f"{name} must be a whole number"):
            ShrinkSettings(macs=0.5, **{name: True})
