"""Events on their way to the callback, the trace and the screen."""

import pytest

from brainsurgeon.events import Event, silent
from brainsurgeon.events.progress import watch


def test_events_reach_the_callback_and_those_of_the_search_the_trace() -> None:
    seen: list[Event] = []
    trace: list[Event] = []
    with watch(seen.append, False, trace) as notify:
        for stage in ("gradients", "search", "scale"):
            notify(Event(stage, 1, 2))
    assert [event.stage for event in seen] == ["gradients", "search", "scale"]
    assert [event.stage for event in trace] == ["search", "scale"]


def test_progress_is_drawn_on_request_and_only_on_the_error_stream(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for progress in (None, False):
        with watch(silent, progress) as notify:
            notify(Event("gradients", 1, 2))
        assert capsys.readouterr() == ("", "")
    with watch(silent, True) as notify:
        notify(Event("gradients", 1, 2))
        notify(Event("gradients", 2, 2))
    assert capsys.readouterr().out == ""
