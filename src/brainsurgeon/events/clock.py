"""Where the time goes: each stretch of a run under its name, none counted twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Seconds by step. A step measured inside another is counted under "outer/inner", and not under "outer"."""

    def __init__(self, device: torch.device | None = None):
        self.seconds: dict[str, float] = {}
        self._device = device
        self._open: list[str] = []
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

    def _close_stretch(self) -> None:
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        if self._open:
            key = "/".join(self._open)
            self.seconds[key] = self.seconds.get(key, 0.0) + now - self._since
        self._since = now
