"""Progress as plain events: bars, logs and traces all hang on one callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

Value = float | int | str | bool
"""What an event may tell: a number, a word, yes or no."""


@dataclass(frozen=True)
class Event:
    """Something happened: `done` of `total` units of `stage`, with what was measured there.

    `label` says which part of a larger piece of work it belongs to, such as "cbs@0.9" in a comparison.
    """

    stage: str
    done: int
    total: int | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    label: str = ""

    def with_values(self, **more: Value) -> Event:
        """Return the event with more measured."""
        return replace(self, values={**self.values, **more})


Callback = Callable[[Event], None]


def silent(event: Event) -> None:
    """Take no notice of an event."""
