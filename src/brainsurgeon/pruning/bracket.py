"""The highest sparsity at which something still holds: up in great steps, then between the last two in small ones.

A step multiplies the share of weights that is kept, so that steps are as long at 0.95 as at 0.5. The first goes to 0.9;
from there each halves the kept share: 0.95, 0.975, …. The first at which the property is lost closes a bracket, which
is halved until the kept shares of its ends differ by no more than a resolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

FIRST = 0.9
"""The sparsity that is tried first."""
PLACES = 4
"""Decimals of a sparsity that is tried."""


@dataclass(frozen=True)
class Bracket:
    """The property holds at `low` (0: the dense network) and is lost at `high`; None while it was never lost."""

    most: float
    resolution: float
    low: float = 0.0
    high: float | None = None

    def next(self) -> float | None:
        """Return the sparsity to try next, None where the bracket is narrow enough."""
        if self.high is None:
            ahead = max(FIRST, round(1 - (1 - self.low) / 2, PLACES))
            return None if self.low >= self.most else min(self.most, ahead)
        if (1 - self.low) / (1 - self.high) <= 1 + self.resolution:
            return None
        middle = round(1 - math.sqrt((1 - self.low) * (1 - self.high)), PLACES)
        return middle if self.low < middle < self.high else None

    def after(self, sparsity: float, holds: bool) -> Bracket:
        """Return the bracket once a sparsity was tried."""
        low, high = (sparsity, self.high) if holds else (self.low, sparsity)
        return Bracket(self.most, self.resolution, low, high)

    def tries_left(self) -> int:
        """Return how many tries are still to come at most."""
        sparsity = self.next()
        if sparsity is None:
            return 0
        lost = self.after(sparsity, False).tries_left()
        # Halves of a closed bracket are alike; of an open one the way up is the other way to go on.
        return 1 + (lost if self.high is not None else max(lost, self.after(sparsity, True).tries_left()))


def search(holds: Callable[[float, Bracket], bool], most: float, resolution: float) -> Bracket:
    """Try sparsities until the bracket is narrow; `holds` is told where the bracket stands."""
    bracket = Bracket(most, resolution)
    while (sparsity := bracket.next()) is not None:
        bracket = bracket.after(sparsity, holds(sparsity, bracket))
    return bracket
