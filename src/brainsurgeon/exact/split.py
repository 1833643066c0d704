"""The diagonal split: how much of a positive definite matrix can be carried by a diagonal one.

At 0-1 points y_i² = y_i, so a part diag(u) of the curvature M costs the same when it is moved into the linear term, and
between those points it costs more: the larger u, the tighter the relaxation, as long as M − diag(u) stays positive
semidefinite. The bound at the root is concave in u; the best u is the solution of a semidefinite program, found here
by Newton steps on a logarithmic barrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray

CENTRING = (10.0, 2.0, 0.4, 0.08, 0.02)
"""The barrier's weight μ in each phase, in units of the cost per weight: in the end it takes 2% of the bound."""
NEWTON_STEPS = 10


@dataclass(frozen=True, eq=False)
class Root:
    """The bound of a split u where nothing is decided yet, its supergradient ∂ and (less than) its curvature −C."""

    bound: float
    prices: Array
    curvature: Array
    warm: Array
    """Where to start for a split nearby."""


RootBound = Callable[[Array, Array | None], Root]


def best_split(matrix: Array, root: RootBound, scale: float, deadline: float = np.inf, positive: bool = False) -> Array:
    """Return the u with the best bound among those with M − diag(u) positive definite (and u > 0 where asked).

    `scale` is the size of the costs at hand. The bounds are valid however far the ascent came by the deadline.
    """
    ascent = _Ascent(matrix, root, positive, deadline)
    for phase in CENTRING:
        ascent.centre(phase * max(scale, 1e-300) / len(matrix))
    return ascent.best


class _Ascent:
    def __init__(self, matrix: Array, root: RootBound, positive: bool, deadline: float):
        self.matrix, self.root, self.positive, self.deadline = matrix, root, positive, deadline
        # In units of the diagonal, the smallest eigenvalue is a safe start whatever the weights' scales.
        unit = np.sqrt(np.diag(matrix))
        least = float(np.linalg.eigvalsh(matrix / np.outer(unit, unit))[0])
        self.u = 0.5 * max(least, 1e-14) * unit**2
        self.here = root(self.u, None)
        self.best, self.best_bound = self.u, self.here.bound

    def centre(self, weight: float) -> None:
        """Maximise bound(u) + μ log det(M − diag u), plus μ Σ log u_i where u must be positive."""
        for _ in range(NEWTON_STEPS):
            if time.perf_counter() > self.deadline:
                return
            gradient, curvature = self._derivatives(weight)
            step = np.linalg.solve(curvature, gradient)
            decrement = float(gradient @ step)
            if not self._advance(step, decrement, weight) or decrement < 0.1 * weight:
                return

    def _derivatives(self, weight: float) -> tuple[Array, Array]:
        inverse = np.linalg.inv(self.matrix - np.diag(self.u))
        gradient = self.here.prices - weight * np.diag(inverse)
        curvature = self.here.curvature + weight * inverse * inverse
        if self.positive:
            gradient = gradient + weight / self.u
            curvature = curvature + np.diag(weight / self.u**2)
        return gradient, curvature

    def _advance(self, step: Array, decrement: float, weight: float) -> bool:
        """Go as far along the step as the barrier's objective rises; say whether that was anywhere."""
        value = self.here.bound + weight * self._barrier(self.u)
        length = 1.0
        while length > 1e-4 and time.perf_counter() < self.deadline:
            trial = self.u + length * step
            barrier = self._barrier(trial)
            if np.isfinite(barrier):
                found = self.root(trial, self.here.warm)
                if found.bound + weight * barrier >= value + 0.05 * length * decrement:
                    self.u, self.here = trial, found
                    if found.bound > self.best_bound:
                        self.best, self.best_bound = trial, found.bound
                    return True
            length /= 2.5
        return False

    def _barrier(self, u: Array) -> float:
        """Return log det(M − diag u); −∞ outside."""
        if self.positive and not (u > 0).all():
            return -np.inf
        try:
            lower = np.linalg.cholesky(self.matrix - np.diag(u))
        except np.linalg.LinAlgError:
            return -np.inf
        value = 2 * float(np.log(np.diag(lower)).sum())
        return value + float(np.log(u).sum()) if self.positive else value


def inverse_on_plane(matrix: Array) -> Array:
    """Return the inverse of a quadratic form on the plane Σx = 0, as a matrix that maps into it."""
    inverse = np.linalg.inv(matrix)
    ones = inverse.sum(1)
    return inverse - np.outer(ones, ones) / ones.sum()
