"""What may be asked for, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.goal import Goal, amount


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs a drop"),
        ({"drop": 0}, "strictly between 0 and 1"),
        ({"drop": 1.0}, "strictly between 0 and 1"),
        ({"drop": "100%"}, "strictly between 0 and 1"),
        ({"drop": "5MB"}, "strictly between 0 and 1"),
        ({"drop": True}, "strictly between 0 and 1"),
        ({"drop": 0.01, "threshold": 90.0}, "not both"),
        ({"drop": 0.01, "metric": "acuracy"}, "unknown metric 'acuracy'"),
        ({"threshold": math.nan}, "a value of the metric"),
        ({"target_bytes": 10**6, "target_macs": 0.5}, "not both"),
        ({"target_bytes": "5 apples"}, "target_bytes is a number"),
        ({"target_bytes": "150%"}, "target_bytes is a number"),
        ({"target_macs": -1}, "target_macs is a number"),
        ({"drop": 0.01, "resolution": 0}, "resolution must lie"),
        ({"drop": 0.01, "most": 1.0}, "strictly between 0 and 1"),
    ],
)
def test_a_goal_that_means_nothing_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        Goal(**given)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("5MB", 5_000_000),
        ("5 MiB", 5 * 2**20),
        ("300kB", 300_000),
        ("1.5g", 1_500_000_000),
        ("40M", 40_000_000),
        ("1234", 1234),
        (1234, 1234),
        ("50%", 0.5),
        (0.5, 0.5),
        ("12 b", 12),
    ],
)
def test_amounts_as_people_write_them(given: Any, read: float) -> None:
    assert amount(given, "target_bytes") == read
    assert Goal(drop="1%").drop == 0.01


def test_a_drop_is_a_share_of_what_is_perfect_or_of_the_dense_value() -> None:
    assert Goal(drop=0.01).kept("accuracy", 94.0, 93.0)
    assert not Goal(drop=0.01).kept("accuracy", 94.0, 92.99)
    assert Goal(drop=0.01).kept("r2", 0.5, 0.49)
    assert not Goal(drop=0.01).kept("r2", 0.5, 0.489)
    # of perplexity and losses less is better, and a drop is a share of the dense value
    assert Goal(drop=0.05).kept("perplexity", 20.0, 21.0)
    assert not Goal(drop=0.05).kept("perplexity", 20.0, 21.01)
    assert Goal(drop=0.05).kept("perplexity", 20.0, 10.0)
    assert not Goal(drop=0.05).kept("loss", 1.0, 1.06)
    assert Goal(drop=0.05).kept(lambda model: 0.0, 20.0, 19.0)
    assert not Goal(drop=0.5).kept("accuracy", 94.0, math.nan)


def test_a_threshold_is_a_least_or_a_most() -> None:
    assert Goal(threshold=93.0).kept("accuracy", 94.0, 93.0)
    assert not Goal(threshold=93.0).kept("accuracy", 94.0, 92.9)
    assert Goal(threshold=21.0).kept("perplexity", 20.0, 21.0)
    assert not Goal(threshold=21.0).kept("perplexity", 20.0, 21.1)
    assert Goal(threshold=93.0).allowed("accuracy", 94.0) == pytest.approx(0.01)
    assert Goal(threshold=21.0).allowed("perplexity", 20.0) == pytest.approx(0.05)
