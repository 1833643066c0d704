"""What a method finds, before it is written into a model: the mask, the new weights, and how they came about."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from brainsurgeon.engine.budget import Budget, Share
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.events import Callback
from brainsurgeon.events.clock import Clock
from brainsurgeon.samples.batches import Batch
from brainsurgeon.samples.held_out import TrainingSamples


def _gone() -> None:
    return None


@dataclass(frozen=True)
class Examined:
    """The counts that a mask had to meet, and a way to the quadratic model for as long as someone else holds it."""

    budget: Budget
    quadratic: Callable[[], QuadraticModel | None] = _gone

    @classmethod
    def of(cls, budget: Budget, quadratic: QuadraticModel | None, held: bool) -> Examined | None:
        """Remember a model that belongs to a `Surgery`, or hold on to it; None where a method had none."""
        if quadratic is None:
            return None
        return cls(budget, (lambda: quadratic) if held else weakref.ref(quadratic))

    def __reduce__(self) -> tuple[Any, ...]:
        return Examined, (self.budget,)  # a copy in a file or another process has no model to refer to


@dataclass(frozen=True)
class Start:
    """A pruned network that a run goes on from, to a higher sparsity: the one that the leg before gave.

    `legs` is the number of legs that led there; it sets the samples that each leg draws apart.
    """

    model: nn.Module
    masks: Mapping[str, Tensor]
    legs: int = 1


@dataclass(frozen=True)
class Task:
    """What a method is asked to do, beside the model and its samples.

    `model` is the one that will be given back; a method may write into it as it goes on. `store` keeps what a killed
    run goes on from. `begun` is a cut that was made already, for a method that begins with one. `start` is where a leg
    of a path begins; a method that trains goes on from there, another begins at the dense network all the same.
    `samples` are split already where several methods share what is held out. `rate` is a learning rate that was found
    elsewhere: unlike one that the method is given, it may be lowered where it diverges.
    """

    model: nn.Module
    shares: list[Share]
    seed: int
    notify: Callback
    clock: Clock
    store: Any = None
    begun: Outcome | None = None
    start: Start | None = None
    samples: TrainingSamples | None = None
    rate: float | None = None

    @property
    def total(self) -> int:
        """⌈rN⌉."""
        return sum(share.count for share in self.shares)


@dataclass(frozen=True)
class Outcome:
    """The masks by parameter name and the new weights (None where they are in the model already), with what is told.

    `sample` holds the batches on which the loss of the final model is reported, or `measure` does it in a way of its
    own; `record` holds what was used beside the method's own settings.
    """

    masks: Mapping[str, Tensor]
    values: dict[str, Tensor] | None
    sample: Sequence[Batch] = ()
    loss_before: float | None = None
    predicted_change: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    examined: Examined | None = None
    measure: Callable[[nn.Module], float | None] | None = None
