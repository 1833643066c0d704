"""A clock that tells where the seconds went."""

import math
import time
from types import SimpleNamespace

import pytest

from brainsurgeon.events import Event
from brainsurgeon.events import clock as clock_module
from brainsurgeon.events.clock import Clock, TimeUp, pulse


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


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still until it is moved."""
    moment = [100.0]
    fake = SimpleNamespace(monotonic=lambda: moment[0], perf_counter=lambda: moment[0])
    monkeypatch.setattr(clock_module, "time", fake)
    return moment


def test_silence_is_ended_by_a_pulse(now: list[float]) -> None:
    events: list[Event] = []
    clock = Clock(notify=events.append)
    with clock.measure("outer"), clock.measure("inner"):
        clock.pulse()
        now[0] += 0.9
        clock.pulse()
        assert not events
        now[0] += 0.2
        clock.pulse()
        clock.pulse()
    assert [(event.stage, event.values["step"]) for event in events] == [("working", "outer/inner")]
    clock.notify(Event("other", 1))
    now[0] += 0.9
    clock.pulse()
    assert len(events) == 2  # any event ends a silence
    now[0] += 0.9
    clock.pulse()
    assert events[-1].values["step"] == "preparation"  # outside of any step


def test_a_pulse_after_the_deadline_ends_the_work(now: list[float]) -> None:
    clock = Clock(limit=10.0, spent=4.0)
    assert clock.left == 6.0
    clock.keep_back(1.0)
    now[0] += 4.9
    clock.pulse()
    now[0] += 0.2
    clock.beat()
    with pytest.raises(TimeUp):
        clock.pulse()
    with clock.unlimited():
        clock.pulse()
    with pytest.raises(TimeUp):
        clock.pulse()


def test_a_pulse_ends_nothing_that_several_processes_share(now: list[float]) -> None:
    clock = Clock(limit=10.0)
    now[0] += 11
    with clock.sharing(True):
        clock.pulse()
        with clock.sharing(False), pytest.raises(TimeUp):
            clock.pulse()
        clock.pulse()
    with pytest.raises(TimeUp):
        clock.pulse()


def test_a_step_may_have_less_time_than_the_run(now: list[float]) -> None:
    clock = Clock(limit=10.0)
    with clock.within(2.0):
        assert clock.left == 2.0
        now[0] += 3.0
        with pytest.raises(TimeUp):
            clock.pulse()
    assert clock.left == 7.0
    with clock.within(100.0):
        assert clock.left == 7.0
    with Clock().within(math.inf):
        pass


def test_the_clock_of_the_run_under_way_is_looked_at(now: list[float]) -> None:
    pulse()  # there is none
    outer, inner = Clock(limit=1.0), Clock()
    now[0] += 2.0
    with outer.running():
        with inner.running():
            pulse()
        with pytest.raises(TimeUp):
            pulse()
    pulse()


def test_no_handler_of_errors_swallows_it() -> None:
    assert not issubclass(TimeUp, Exception)


def test_steps_can_be_timed_by_the_processor_and_deadlines_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleep takes none of the processor's time."""
    monkeypatch.setattr(Clock, "counter", staticmethod(time.process_time))
    clock = Clock(limit=60.0)
    with clock.measure("asleep"):
        time.sleep(0.2)
    assert clock.seconds["asleep"] < 0.15
    assert clock.left < 59.9
