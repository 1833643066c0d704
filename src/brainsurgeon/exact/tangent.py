"""Lower bounds from tangents: all that a branch and bound needs of a cost.

A relaxation is a convex function c of y that agrees with the cost wherever y is 0 or 1. By convexity its tangent at
any ŷ lies below it, so c(ŷ) + min ∇c(ŷ)ᵀ(y − ŷ) over the 0-1 points y with Σy = n, a matter of sorting, is a lower
bound, however roughly ŷ was computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from brainsurgeon.exact.instance import Array

FREE = -1
"""In a node's state: a weight not yet decided; 0 is kept, 1 is pruned."""


class Relaxation(Protocol):
    """A convex function on {y : Σy = n}; rows of arrays are nodes."""

    @property
    def size(self) -> int:
        """N."""

    @property
    def count(self) -> int:
        """The number n of weights to prune."""

    @property
    def weight(self) -> Array:
        """How much deciding on each weight can matter: the larger, the earlier it is branched on."""

    def cold(self) -> Array:
        """Return the warm start of the root."""

    def relax(self, state: Array, warm: Array) -> tuple[Array, Array]:
        """Return near-minimisers with Σy = n within the boxes of the states, and what to start the children from."""

    def tangent(self, y: Array) -> tuple[Array, Array]:
        """Return values and gradients."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """What the tangents at y say of each node."""

    lower: Array
    point: Array
    flip: Array
    """The least that the bound rises by if a weight is decided otherwise than `point` has it."""


def bounds(relaxation: Relaxation, state: Array, y: Array) -> Bounds:
    """Minimise the tangents at y over the 0-1 points of each node: a sort."""
    values, gradients = relaxation.tangent(y)
    n, size = relaxation.count, relaxation.size
    keys = np.where(state == FREE, gradients, np.where(state == 1, -np.inf, np.inf))
    order = np.argsort(keys, axis=1)
    point = np.zeros_like(gradients)
    np.put_along_axis(point, order[:, :n], 1.0, axis=1)
    lower = values + (gradients * (point - y)).sum(1)
    ranked = np.take_along_axis(keys, order, axis=1)
    last = ranked[:, n - 1 : n] if n else np.full((len(keys), 1), -np.inf)
    first = ranked[:, n : n + 1] if n < size else np.full((len(keys), 1), np.inf)
    flip = np.where(point == 1, first - gradients, gradients - last)
    return Bounds(lower, point, flip)


def root_bound(relaxation: Relaxation, warm: Array | None = None) -> tuple[float, Array, Array]:
    """Return the lower bound where nothing is decided, the relaxed y, and where to start next time."""
    state = np.full((1, relaxation.size), FREE, np.int8)
    y, after = relaxation.relax(state, relaxation.cold()[None] if warm is None else warm)
    return float(bounds(relaxation, state, y).lower[0]), y[0], after
