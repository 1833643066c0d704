"""Where the time goes, and when it is up: each stretch of a run under its name, none counted twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from brainsurgeon.events import Callback, Event, silent

PREPARATION = "preparation"
"""What is told of work before the first step that is measured, and between them."""
PULSE = 1.0
"""Seconds without an event after which a loop that is still at work says so."""


class TimeUp(BaseException):
    """Ends the step under way because its time is up: whoever set the limit has something to fall back on.

    It is no `Exception`, so that no handler of a user's errors swallows it.
    """


class Clock:
    """Seconds by step, and the moment by which all must be done.

    A step measured inside another is counted under "outer/inner", and not under "outer". `limit` is in seconds from
    now, of which `spent` were used before, by a run that was resumed. Events pass through `notify`, so that silence is
    noticed. With `shared` several processes are at one work: none of them may end it by its own time, so `pulse` ends
    nothing, and they agree on the end where they meet.
    """

    counter: Callable[[], float] = staticmethod(time.perf_counter)
    """What steps are timed by; on a busy machine a measurement may take `time.process_time`. Deadlines do not."""

    def __init__(
        self,
        device: torch.device | None = None,
        notify: Callback = silent,
        limit: float | None = None,
        spent: float = 0.0,
    ):
        self.seconds: dict[str, float] = {}
        self.started = self._told = time.monotonic()
        self.deadline = math.inf if limit is None else self.started + limit - spent
        self._device, self._callback = device, notify
        self._open: list[str] = []
        self.shared = False
        self._since = 0.0

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count the time of the block under `name`."""
        self._close_stretch()
        self._open.append(name)
        try:
            yield
        finally:
            self._close_stretch()
            self._open.pop()

    def notify(self, event: Event) -> None:
        """Pass an event on."""
        self._told = time.monotonic()
        self._callback(event)

    def beat(self) -> None:
        """Say that work goes on, where nothing was said for a while."""
        now = time.monotonic()
        if now - self._told > PULSE:
            self.notify(Event("working", int(now - self.started), None, {"step": "/".join(self._open) or PREPARATION}))

    def pulse(self) -> None:
        """Say that work goes on; end it where its time is up."""
        self.beat()
        if self.is_limited and not self.shared and self.left <= 0:
            raise TimeUp

    @property
    def is_limited(self) -> bool:
        """Whether there is a moment by which all must be done."""
        return self.deadline < math.inf

    @property
    def left(self) -> float:
        """The seconds that are left, infinity where there is no limit."""
        return self.deadline - time.monotonic() if self.is_limited else math.inf

    def keep_back(self, seconds: float) -> None:
        """Keep some seconds for what comes after the deadline: what was found is still to be measured."""
        self.deadline -= seconds

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Give a step so many seconds at most; infinity gives it all that is left."""
        before = self.deadline
        self.deadline = min(before, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.deadline = before

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Let the block end in its own time: what is to be measured was kept time for."""
        before, self.deadline = self.deadline, math.inf
        try:
            yield
        finally:
            self.deadline = before

    @contextmanager
    def sharing(self, shared: bool) -> Iterator[None]:
        """Say for a block whether its end is for several processes to agree on."""
        before, self.shared = self.shared, shared
        try:
            yield
        finally:
            self.shared = before

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the clock that `pulse` looks at."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)

    def _close_stretch(self) -> None:
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = self.counter()
        if self._open:
            key = "/".join(self._open)
            self.seconds[key] = self.seconds.get(key, 0.0) + now - self._since
        self._since = now


_running: ContextVar[Clock | None] = ContextVar("clock", default=None)


def pulse() -> None:
    """Call in every loop that may take long: it tells that work goes on, and ends it where the time of the run is up.

    The clock is that of the run under way, so that no function in between must hand it on.
    """
    clock = _running.get()
    if clock is not None:
        clock.pulse()
