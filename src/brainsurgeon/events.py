"""Progress as plain events: bars, logs and traces all hang on one callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Event:
    """Something happened: `done` of `total` units of `stage`, with what was measured there.

    `label` says which part of a larger piece of work it belongs to, such as "cbs@0.9" in a comparison.
    """

    stage: str
    done: int
    total: int | None = None
    values: dict[str, float] = field(default_factory=dict)
    label: str = ""

    def with_values(self, **more: float) -> Event:
        """Return the event with more measured."""
        return replace(self, values={**self.values, **more})


Callback = Callable[[Event], None]


def silent(event: Event) -> None:
    """Take no notice of an event."""
