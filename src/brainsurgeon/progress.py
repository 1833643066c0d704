"""Bars on a terminal, silence elsewhere; the trace of a run. All hang on the one callback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .events import Callback, Event

TRACED = {"search", "scale"}


@contextmanager
def watch(callback: Callback, progress: bool | None, trace: list[Event] | None = None) -> Iterator[Callback]:
    """Give a callback that passes events on, keeps those of the search, and draws bars if wanted."""
    shown = sys.stderr.isatty() if progress is None else progress
    with _bars() if shown else _nothing() as draw:

        def notify(event: Event) -> None:
            if trace is not None and event.stage in TRACED:
                trace.append(event)
            draw(event)
            callback(event)

        yield notify


@contextmanager
def _nothing() -> Iterator[Callback]:
    yield lambda event: None


@contextmanager
def _bars() -> Iterator[Callback]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, object] = {}

        def draw(event: Event) -> None:
            if event.stage not in tasks:
                tasks[event.stage] = bars.add_task(event.stage, total=event.total)
            bars.update(tasks[event.stage], completed=event.done)  # type: ignore[arg-type]

        yield draw
