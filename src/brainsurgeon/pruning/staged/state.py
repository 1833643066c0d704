"""Where a staged run is, and how that is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

FIRST_DAMPING = {"fisher": 1.0, "gram": 0.01}
LEAST_DAMPING, MOST_DAMPING = 1e-6, 1e6
FIRST_LENGTH, LEAST_LENGTH, MOST_LENGTH = 0.1, 1e-5, 10.0
FIRST_RATE = 1e-4


@dataclass(frozen=True)
class Choice:
    """What was last found to work on the samples held out.

    `damping` is known for each kind of curvature, the `length` of a step for each kind and slope. `slope` is what the
    last step went along, `favoured` what the last step that was taken did; `rate` is the learning rate of training.
    """

    kind: str
    slope: str = ""
    favoured: str = ""
    momentum: float = 0.0
    damping: dict[str, float] = field(default_factory=lambda: dict(FIRST_DAMPING))
    length: dict[str, float] = field(default_factory=dict)
    reconstructed: bool = False
    rate: float = FIRST_RATE


@dataclass(frozen=True)
class State:
    """Weights, mask, and what was last found to work; enough to go on from.

    `last_step` is the last step of the weights; `gradients` are the sample gradients taken so far, `trained` those of
    them that trainings took; `idle` counts the last refits that led nowhere.
    """

    number: int
    progress: float
    values: Tensor
    pruned: Tensor
    last_step: Tensor
    choice: Choice
    loss: float = float("nan")
    gradients: int = 0
    trained: int = 0
    idle: int = 0

    @classmethod
    def begin(cls, values: Tensor, kind: str) -> State:
        """Return the state before anything is done."""
        return cls(0, 0.0, values, torch.zeros_like(values, dtype=torch.bool), torch.zeros_like(values), Choice(kind))

    def choosing(self, **changes: object) -> State:
        """Return the same state with another choice."""
        return replace(self, choice=replace(self.choice, **changes))  # type: ignore[arg-type]

    def damped(self, factor: float) -> State:
        """Return the same state with its kind's damping multiplied."""
        known, kind = self.choice.damping, self.choice.kind
        damping = min(max(known[kind] * factor, LEAST_DAMPING), MOST_DAMPING)
        return self.choosing(damping={**known, kind: damping})

    def length(self, slope: str) -> float:
        """Return the length of a step along a slope."""
        return self.choice.length.get(f"{self.choice.kind}/{slope}", FIRST_LENGTH)

    def stretched(self, slope: str, factor: float) -> State:
        """Return the same state with the step along a slope longer or shorter."""
        length = min(max(self.length(slope) * factor, LEAST_LENGTH), MOST_LENGTH)
        lengths = {**self.choice.length, f"{self.choice.kind}/{slope}": length}
        return self.choosing(slope=slope, favoured=slope, length=lengths)

    def shortened(self, slopes: Iterable[str], factor: float) -> State:
        """Return the same state after no step was worth taking: the next ones are tried shorter."""
        state = self
        for slope in slopes:
            state = state.stretched(slope, factor)
        return state.choosing(slope="", favoured=self.choice.favoured, momentum=0.0)


class Store(Protocol):
    """Stores the state after each stage, and gives it back to a run that is resumed."""

    def load(self) -> State | None:
        """Return the last state that was stored, None for a new run."""

    def save(self, state: State) -> None:
        """Store a state."""
