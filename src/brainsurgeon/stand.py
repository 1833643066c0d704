"""Where a staged run stands, what it may cost, and how a stand is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from .errors import BrainsurgeonError

FIRST_DAMPING = {"fisher": 1.0, "gram": 0.01}
LEAST_DAMPING, MOST_DAMPING = 1e-6, 1e6
FIRST_LENGTH, LEAST_LENGTH, MOST_LENGTH = 0.1, 1e-5, 10.0
FIRST_STRIDE = 1e-4


@dataclass(frozen=True)
class Stand:
    """Weights, mask, and what was last found to work; enough to go on from.

    `drift` is the last step of the weights; `damping` is known for each kind of curvature, the `length` of a step for
    each kind and slope. `slope` is what the last step went along, `favoured` what the last step that was taken did;
    `gradients` are the sample gradients taken so far, `walked` those of them that walks took; `idle` counts the last
    stages that led nowhere.
    """

    number: int
    progress: float
    values: Tensor
    pruned: Tensor
    drift: Tensor
    kind: str
    slope: str = ""
    momentum: float = 0.0
    damping: dict[str, float] = field(default_factory=lambda: dict(FIRST_DAMPING))
    length: dict[str, float] = field(default_factory=dict)
    loss: float = float("nan")
    favoured: str = ""
    gradients: int = 0
    walked: int = 0
    rebuilt: bool = False
    idle: int = 0
    stride: float = FIRST_STRIDE

    def damped(self, factor: float) -> Stand:
        """Return the same stand with its kind's damping multiplied."""
        return replace(self, damping={**self.damping, self.kind: _times(self.damping[self.kind], factor)})

    def reach(self, slope: str) -> float:
        """Return the length of a step along a slope."""
        return self.length.get(f"{self.kind}/{slope}", FIRST_LENGTH)

    def stretched(self, slope: str, factor: float) -> Stand:
        """Return the same stand with the step along a slope longer or shorter."""
        length = min(max(self.reach(slope) * factor, LEAST_LENGTH), MOST_LENGTH)
        return replace(self, slope=slope, favoured=slope, length={**self.length, f"{self.kind}/{slope}": length})

    def shortened(self, slopes: Iterable[str], factor: float) -> Stand:
        """Return the same stand after no step was worth taking: the next ones are tried shorter."""
        stand = self
        for slope in slopes:
            stand = stand.stretched(slope, factor)
        return replace(stand, slope="", favoured=self.favoured, momentum=0.0)


def _times(damping: float, factor: float) -> float:
    return min(max(damping * factor, LEAST_DAMPING), MOST_DAMPING)


class Keeper(Protocol):
    """Keeps the stand after each stage, and gives it back to a run that is resumed."""

    def load(self) -> Stand | None:
        """Return the last stand that was kept, None for a new run."""

    def save(self, stand: Stand) -> None:
        """Keep a stand."""


@dataclass(frozen=True)
class Effort:
    """What a staged run may cost: sample gradients in all, and seconds."""

    max_gradients: int = 120_000
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.max_gradients < 1:
            raise BrainsurgeonError(f"max_gradients must be at least 1, got {self.max_gradients}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise BrainsurgeonError(f"max_seconds must be positive, or None for no limit, got {self.max_seconds}")

    def share(self, looks: int, taken: int = 0, reserved: float = 0.0) -> int:
        """Return how many gradients each of the looks at the loss that are still to come may take."""
        most = int(self.max_gradients * (1 - reserved))
        if most < looks + taken:
            raise BrainsurgeonError(
                f"max_gradients={self.max_gradients} is not one for each of the {looks} looks at the loss that the "
                "stages and refits take: allow more, or ask for fewer stages"
            )
        return (most - taken) // looks
