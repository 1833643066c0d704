"""Bars on a terminal, silence elsewhere; the trace of a run. All hang on the one callback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from brainsurgeon.events import Callback, Event

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task, TaskID

TRACED = {"search", "scale", "stages"}


@contextmanager
def watch(callback: Callback, progress: bool | None, trace: list[Event] | None = None) -> Iterator[Callback]:
    """Give a callback that passes events on, keeps those of the search, and draws bars if wanted."""
    shown = sys.stderr.isatty() if progress is None else progress
    with bars() if shown else _nothing() as draw:

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
def bars(console: Console | None = None) -> Iterator[Callback]:
    """Give a callback that draws a bar a stage, with its rate and the time left; they vanish at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if not speed else f"{speed:.0f}/s" if speed >= 10 else f"{speed:.2g}/s", style="dim")

    left = TimeRemainingColumn(elapsed_when_finished=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(None), MofNCompleteColumn(), Rate(), left)
    with Progress(*columns, console=console or Console(stderr=True), transient=True, expand=True) as shown:
        tasks: dict[str, TaskID] = {}
        last: dict[str, int] = {}

        def draw(event: Event) -> None:
            name = event.stage if event.stage == "cells" else f"{event.label} {event.stage}".strip()
            if name not in tasks:
                tasks[name] = shown.add_task(name, total=event.total, completed=event.done)
            elif event.done < last[name]:  # the same stage once more
                shown.reset(tasks[name], total=event.total)
            last[name] = event.done
            around = {"cells", f"{event.label} stages".strip()}
            if name not in around:  # one bar at a time for what goes on inside
                for other, task in tasks.items():
                    shown.update(task, visible=other == name or other in around)
            shown.update(tasks[name], completed=event.done, total=event.total)

        yield draw
