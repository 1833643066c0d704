"""What a selection and an update are given: the quadratic model, the exact budget, and a way to ask the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, silent
from brainsurgeon.events.clock import Clock


class Judge(Protocol):
    """The sample loss, as seen by a search: it compares weights without ever touching a model."""

    def best_masks(self, masks: Sequence[Tensor], count: int = 1) -> list[int]:
        """Return the numbers of the masks P with the smallest L(P), best first."""

    def is_better(self, new: Tensor, old: Tensor) -> bool:
        """Say whether L(new) < L(old) for two masks."""

    def gradient(self, pruned: Tensor) -> Tensor:
        """Return the mean gradient of the sample loss at the masked weights, an N-vector."""

    def affordable_gradients(self, most: int) -> int:
        """Return how many such gradients are cheap for this network, at most so many."""

    def best_weights(self, candidates: Sequence[Tensor]) -> int:
        """Return the number of the weight vector with the smallest loss."""


@dataclass(frozen=True)
class Problem:
    """Prune exactly `budget` of these weights.

    `quadratic` and `judge` are None where the method said that it needs none. `layers` names the tensors that the
    weights are of, in order, with their shapes.
    """

    weights: Tensor
    budget: Budget
    generator: torch.Generator
    maybe_quadratic: QuadraticModel | None = None
    maybe_judge: Judge | None = None
    notify: Callback = silent
    clock: Clock = field(default_factory=Clock)
    layers: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def quadratic(self) -> QuadraticModel:
        """The quadratic model of the loss."""
        if self.maybe_quadratic is None:
            raise BrainsurgeonError("this method needs curvature: let its `uses_curvature` be True")
        return self.maybe_quadratic

    @property
    def judge(self) -> Judge:
        """The sample loss."""
        if self.maybe_judge is None:
            raise BrainsurgeonError("this method asks for the sample loss: let its `uses_loss` be True")
        return self.maybe_judge

    def changed(self, pruned: Tensor, delta: Tensor) -> Tensor:
        """Return w + δw, exactly 0 on P."""
        return (self.weights.double() + delta).to(self.weights.dtype).masked_fill(pruned, 0.0)


class Selection(Protocol):
    """CBS-S: a way of choosing P. Frozen dataclasses with a `__call__` serve well."""

    def __call__(self, problem: Problem) -> Tensor:
        """Return `pruned`, True where a weight is removed, with exactly the budget's counts."""


class Update(Protocol):
    """CBS-U: a way of changing the kept weights."""

    def __call__(self, problem: Problem, pruned: Tensor) -> Tensor:
        """Return δw; what it says on P is ignored: there the weights become exactly 0."""
