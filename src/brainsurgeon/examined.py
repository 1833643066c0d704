"""What a result remembers of the quadratic model that it was found with, without keeping the gradients in memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .mask import Budget
from .quadratic import QuadraticModel


def _gone() -> None:
    return None


@dataclass(frozen=True)
class Examined:
    """The counts that a mask had to meet, and a way to the quadratic model for as long as someone else holds it."""

    budget: Budget
    quadratic: Callable[[], QuadraticModel | None] = _gone

    @classmethod
    def weakly(cls, budget: Budget, quadratic: QuadraticModel | None) -> Examined | None:
        """Remember a model that belongs to a `Surgery`; None where a method had none."""
        return None if quadratic is None else cls(budget, weakref.ref(quadratic))

    def held(self) -> Examined:
        """Hold on to the model, gradients and all."""
        quadratic = self.quadratic()
        return Examined(self.budget, lambda: quadratic)

    def __reduce__(self) -> tuple[Any, ...]:
        return Examined, (self.budget,)  # a copy in a file or another process has no model to refer to
