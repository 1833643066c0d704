"""Where the sparsity goes: each layer's error at a few sparsities, and one multiplier for them all.

With E_l(s) the error that the loss would feel of layer l at sparsity s, the counts minimise Σ_l E_l subject to their
sum: at the optimum all slopes dE_l/dn_l equal one multiplier, which is found by bisection. Between the sparsities that
were tried log E is taken as linear, and made convex.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from brainsurgeon.engine.budget import apportion
from brainsurgeon.errors import BrainsurgeonError

MOST, SPARED = 0.98, 0.2
"""A layer may lose so much, or all but so much of what layers keep on average: with less it lets nothing through."""
STEPS = 400
"""A curve is tabulated at so many sparsities."""


@dataclass(frozen=True)
class ErrorCurve:
    """The errors of a layer of `size` weights at a few rising sparsities."""

    name: str
    size: int
    sparsities: tuple[float, ...]
    errors: tuple[float, ...]

    def slopes(self, most: float) -> tuple[np.ndarray, np.ndarray]:
        """Return sparsities from 0 to the most, and the error that one more weight costs between them: rising."""
        grid = np.linspace(0.0, most, STEPS + 1)
        known = np.array([max(error, 1e-300) for error in self.errors])
        logs = np.interp(grid, self.sparsities, np.log(known))
        below, first = grid < self.sparsities[0], self.sparsities[0]
        logs[below] = np.log(known[0]) + 2 * np.log(np.maximum(grid[below], 1e-3 * first) / first)  # ~ s² near zero
        beyond = grid > self.sparsities[-1]
        if beyond.any() and len(known) > 1:
            rise = (math.log(known[-1]) - math.log(known[-2])) / (self.sparsities[-1] - self.sparsities[-2])
            logs[beyond] = math.log(known[-1]) + rise * (grid[beyond] - self.sparsities[-1])
        errors = np.exp(logs)
        errors[0] = 0.0
        return grid[1:], np.maximum.accumulate(np.diff(errors) / (self.size * most / STEPS))


def allocate(curves: Sequence[ErrorCurve], total: int, most: float | None = None) -> list[int]:
    """Return how many weights of each layer go, `total` in all: every layer's next weight then costs the same.

    No layer loses more than a share `most`, unless the total asks for it; by default 0.98, or so much that a layer
    keeps a fifth of what the layers keep on average.
    """
    sizes = [curve.size for curve in curves]
    if not 0 <= total <= sum(sizes):
        raise BrainsurgeonError(f"{total} weights cannot be pruned of {sum(sizes)}")
    share = total / sum(sizes)
    most = max(MOST, 1 - SPARED * (1 - share)) if most is None else most
    most = max(most, min(1.0, share + 1e-9))
    tables = [curve.slopes(most) for curve in curves]

    def pruned(multiplier: float) -> list[float]:
        return [
            curve.size * float(np.concatenate([[0.0], grid])[np.searchsorted(slopes, multiplier, side="right")])
            for curve, (grid, slopes) in zip(curves, tables, strict=True)
        ]

    low = min(float(slopes[0]) for _, slopes in tables) * 0.5
    high = max(float(slopes[-1]) for _, slopes in tables) * 2.0
    for _ in range(200):
        middle = math.sqrt(max(low, 1e-300) * max(high, 1e-300))
        low, high = (middle, high) if sum(pruned(middle)) < total else (low, middle)
    below, above = pruned(low), pruned(high)
    share = (total - sum(below)) / max(sum(above) - sum(below), 1e-9)
    quotas = [Fraction(a + min(max(share, 0.0), 1.0) * (b - a)) for a, b in zip(below, above, strict=True)]
    room = [min(size - 1, math.floor(most * size)) for size in sizes]  # no layer is lost as a whole
    room = room if sum(room) >= total else sizes
    quotas = [min(quota, Fraction(limit)) for quota, limit in zip(quotas, room, strict=True)]
    return apportion(total, _fitted(quotas, total, sizes), room)


def _fitted(quotas: list[Fraction], total: int, sizes: list[int]) -> list[Fraction]:
    """Scale quotas so that their whole parts never exceed the total."""
    excess = sum(map(math.floor, quotas)) - total
    if excess <= 0:
        return quotas
    return [quota * Fraction(total, max(1, total + excess)) for quota in quotas]
