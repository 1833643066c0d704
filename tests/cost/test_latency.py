"""Times that were taken."""

import time

from brainsurgeon.cost import latency


def test_each_time_is_of_its_own_run() -> None:
    short, long = latency._times([lambda: time.sleep(0.002), lambda: time.sleep(0.02)], 0.01)
    assert 2 <= short < long
    assert long >= 20
