"""CBS-S relaxed: a convex quadratic function of y that equals the cost wherever y is 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brainsurgeon.exact.instance import Array
from brainsurgeon.exact.split import Root, best_split, inverse_on_plane
from brainsurgeon.exact.tangent import root_bound

OVER_RELAXATION = 1.6
ROOT_ITERATIONS = 60
EDGE = 1e-6
FLOOR = 1e-10
"""A weight of zero has no curvature; it is given this much of the largest, and none of it enters a bound."""


@dataclass(frozen=True, eq=False)
class SelectionRelaxation:
    """½yᵀ(M − diag u)y + (c + ½u)ᵀy, convex on Σy = n; it equals the cost of CBS-S at 0-1 points.

    It is minimised by the alternating direction method of multipliers: one linear map that is the same for all nodes,
    with Σy = n built in, and one clipping to the box.
    """

    matrix: Array
    linear: Array
    count: int
    shift: Array
    iterations: int = 30

    @property
    def size(self) -> int:
        """N."""
        return self.linear.size

    @cached_property
    def weight(self) -> Array:
        """M_ii, up to a factor."""
        return self._penalty

    @cached_property
    def _convex(self) -> Array:
        return self.matrix - np.diag(self.shift)

    @cached_property
    def _slope(self) -> Array:
        return self.linear + self.shift / 2

    @cached_property
    def _penalty(self) -> Array:
        diagonal = np.diag(self.matrix)
        return 0.03 * np.maximum(diagonal, FLOOR * diagonal.max())

    @cached_property
    def _maps(self) -> tuple[Array, Array]:
        """T and t: y = T(ρ∘v − l) + t minimises c(y) + ½(y − v)ᵀdiag(ρ)(y − v) on Σy = n."""
        system = self._convex + np.diag(self._penalty) + np.diag(self.matrix).max()
        ones = np.linalg.solve(system, np.ones(self.size))
        return inverse_on_plane(system), self.count * ones / ones.sum()

    def tangent(self, y: Array) -> tuple[Array, Array]:
        """Return values and gradients."""
        image = y @ self._convex
        return (y * (image / 2 + self._slope)).sum(1), image + self._slope

    def cold(self) -> Array:
        """Return y = n/N, and no multipliers."""
        return np.concatenate([np.full(self.size, self.count / self.size), np.zeros(self.size)])

    def relax(self, state: Array, warm: Array) -> tuple[Array, Array]:
        """Iterate a fixed number of times; the result meets Σy = n exactly and the box nearly."""
        low, high = (state == 1).astype(float), (state != 0).astype(float)
        project, offset = self._maps
        x, dual = np.clip(warm[:, : self.size], low, high), warm[:, self.size :]
        y = x
        for _ in range(self.iterations):
            y = (self._penalty * (x - dual) - self._slope) @ project + offset
            ahead = OVER_RELAXATION * y + (1 - OVER_RELAXATION) * x + dual
            x = np.clip(ahead, low, high)
            dual = ahead - x
        return y, np.concatenate([x, dual], axis=1)


def rough_selection(matrix: Array, linear: Array, count: int) -> SelectionRelaxation:
    """Relax ½yᵀMy + cᵀy without a split: its values are right, its bounds weak."""
    return SelectionRelaxation(matrix, linear, count, np.zeros(linear.size))


def tight_selection(
    matrix: Array, linear: Array, count: int, scale: float, deadline: float = np.inf
) -> SelectionRelaxation:
    """Relax ½yᵀMy + cᵀy with the split of the tightest bound at the root; `scale` is the gap that there is to close."""
    # On Σy = n, curvature along (1,…,1) does not matter: as much of it as is wanted may be added.
    extra = FLOOR * np.diag(matrix).max()
    lifted = matrix + 10 * np.diag(matrix).max() + extra * np.eye(linear.size)

    def root(shift: Array, warm: Array | None) -> Root:
        trial = SelectionRelaxation(matrix, linear, count, shift - extra, ROOT_ITERATIONS)
        lower, y, warm = root_bound(trial, warm)
        inside = np.clip(y, 0, 1)
        open_ = (inside > EDGE) & (inside < 1 - EDGE)
        curvature = np.zeros_like(matrix)
        if open_.sum() > 1:
            part = np.ix_(open_, open_)
            lever = 0.5 - inside[open_]
            regular = lifted[part] - np.diag(shift[open_] - 1e-9 * np.diag(matrix)[open_])
            curvature[part] = lever[:, None] * inverse_on_plane(regular) * lever
        return Root(lower, inside * (1 - inside) / 2, curvature, warm)

    return SelectionRelaxation(matrix, linear, count, best_split(lifted, root, scale, deadline) - extra)
