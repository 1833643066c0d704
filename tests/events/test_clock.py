"""A clock that tells where the seconds went."""

import time

import pytest

from brainsurgeon.events.clock import Clock


def test_a_clock_counts_no_second_twice() -> None:
    clock = Clock()
    start = time.perf_counter()
    with clock.measure("outer"):
        time.sleep(0.01)
        with clock.measure("inner"):
            time.sleep(0.02)
        time.sleep(0.01)
    elapsed = time.perf_counter() - start
    assert set(clock.seconds) == {"outer", "outer/inner"}
    assert clock.seconds["outer/inner"] >= 0.02
    assert clock.seconds["outer"] >= 0.02
    assert sum(clock.seconds.values()) <= elapsed


def test_a_clock_counts_what_fails_too() -> None:
    clock = Clock()
    with pytest.raises(KeyError), clock.measure("step"):
        raise KeyError
    assert clock.seconds["step"] > 0
