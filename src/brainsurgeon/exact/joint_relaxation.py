"""CBS relaxed: selection and update together, as a convex function of y that equals the cost wherever y is 0 or 1.

With x the weights in the end, v the unpruned optimum and s = 1 − y, 1 where a weight is kept, CBS is
min ½(x−v)ᵀH(x−v) with x_i = 0 where s_i = 0. Split H = R + diag(δ) with R positive semidefinite and put δ_ix_i²/s_i
in the place of δ_ix_i² (the perspective): at 0-1 points nothing changes, in between it costs more. For a given s the
best x is a linear system, so with b = Hv

    c(s) = ½vᵀHv − ½bᵀ(R + diag(δ/s))⁻¹b,    ∂c/∂s_i = −α_i²/(2δ_i)  with  α = b − Rx.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brainsurgeon.exact.instance import Array, Instance
from brainsurgeon.exact.split import Root, best_split, inverse_on_plane
from brainsurgeon.exact.tangent import root_bound

ROOT_ITERATIONS = 30
EDGE = 1e-6
LEAST = 1e-5
"""What is left of a weight that the relaxation does not keep: 0 could never come back."""


@dataclass(frozen=True, eq=False)
class JointRelaxation:
    """c(1 − y), minimised by the fixed point s_i ∝ √δ_i|x_i| of the stationarity conditions, cut off at 1."""

    instance: Instance
    count: int
    shift: Array
    iterations: int = 8

    @property
    def size(self) -> int:
        """N."""
        return self.instance.size

    @cached_property
    def weight(self) -> Array:
        """v_i²H_ii: the cost of pruning the weight alone, without an update."""
        return self.instance.centre**2 * np.diag(self.instance.hessian)

    @cached_property
    def _rest(self) -> Array:
        return self.instance.hessian - np.diag(self.shift)

    @cached_property
    def _right(self) -> Array:
        return self.instance.hessian @ self.instance.centre

    @cached_property
    def _constant(self) -> float:
        return float(self._right @ self.instance.centre) / 2 + self.instance.floor

    def solve(self, s: Array) -> tuple[Array, Array]:
        """Return x and α for each s; with T = √(s/δ), x = T(I + TRT)⁻¹Tb is well conditioned even where s = 0."""
        root = np.sqrt(s / self.shift)
        system = root[:, :, None] * self._rest * root[:, None, :]
        system[:, np.arange(self.size), np.arange(self.size)] += 1.0
        x = root * np.linalg.solve(system, (root * self._right)[:, :, None])[:, :, 0]
        return x, self._right - x @ self._rest

    def tangent(self, y: Array) -> tuple[Array, Array]:
        """Return values and gradients."""
        x, alpha = self.solve(np.clip(1 - y, 0, 1))
        return self._constant - x @ self._right / 2, alpha**2 / (2 * self.shift)

    def cold(self) -> Array:
        """Return y = n/N."""
        return np.full(self.size, self.count / self.size)

    def relax(self, state: Array, warm: Array) -> tuple[Array, Array]:
        """Iterate a fixed number of times."""
        kept, free = self.size - self.count, state < 0
        fixed = (state == 0).astype(float)
        s = np.where(free, np.clip(1 - warm, LEAST, 1), fixed)
        for _ in range(self.iterations):
            _, alpha = self.solve(s)
            pull = np.where(free, np.maximum(s, LEAST) * np.abs(alpha) / np.sqrt(self.shift), 0.0)
            s = np.where(free, share_out(pull, kept - fixed.sum(1)), fixed)
        return 1 - s, 1 - s


def share_out(pull: Array, total: Array) -> Array:
    """Return min(1, t·pull) with t such that each row adds up to `total`."""
    ranked = -np.sort(-pull, axis=1)
    tail = np.cumsum(ranked[:, ::-1], axis=1)[:, ::-1]
    full = np.arange(pull.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = (total[:, None] - full) / tail
        # With the k largest at 1, t = (total − k)/(rest) must leave the next one below 1.
        fits = (scale * ranked <= 1 + 1e-12) & (scale >= 0)
    first = fits.argmax(1)
    t = np.take_along_axis(np.where(np.isfinite(scale), scale, 0.0), first[:, None], axis=1)
    return np.minimum(1.0, t * pull)


def rough_joint(instance: Instance, count: int) -> JointRelaxation:
    """CBS relaxed with an even split: its values at 0-1 points are right, its bounds weak."""
    return JointRelaxation(instance, count, np.full(instance.size, instance.spectrum[0][0] / 2))


def tight_joint(instance: Instance, count: int, scale: float, deadline: float = np.inf) -> JointRelaxation:
    """CBS relaxed with the split of the tightest bound at the root; `scale` is the size of the costs at hand."""

    def root(shift: Array, warm: Array | None) -> Root:
        trial = JointRelaxation(instance, count, shift, ROOT_ITERATIONS)
        lower, y, warm = root_bound(trial, warm)
        s = np.clip(1 - y, 0, 1)
        _, alpha = trial.solve(s[None])
        slope = alpha[0] / shift
        return Root(lower, slope**2 * s * (1 - s) / 2, _curvature(trial, s, slope), warm)

    shift = best_split(instance.hessian, root, scale, deadline, positive=True)
    return JointRelaxation(instance, count, shift)


def _curvature(trial: JointRelaxation, s: Array, slope: Array) -> Array:
    """−∂²(min c)/∂δ²: the direct part and what the minimising s gives way by; `slope` is x/s."""
    root = np.sqrt(s / trial.shift)
    inner = np.linalg.inv(np.eye(s.size) + root[:, None] * trial._rest * root)
    inverse = root[:, None] * inner * root
    lever = slope * (1 - s)
    direct = lever[:, None] * inverse * lever
    open_ = (s > 10 * LEAST) & (s < 1 - EDGE)
    if open_.sum() < 2:
        return direct
    part = np.ix_(open_, open_)
    ratio = slope * trial.shift / np.where(open_, s, 1.0)
    twice = np.diag(slope**2 * trial.shift / np.where(open_, s, 1.0)) - ratio[:, None] * inverse * ratio
    mixed = ratio[:, None] * inverse * lever - np.diag(slope**2 / 2)
    most = max(np.diag(twice)[open_].max(), LEAST)
    regular = twice[part] + 1e-9 * most * np.eye(int(open_.sum()))  # a weight of zero has none of its own
    return direct + mixed[open_].T @ inverse_on_plane(regular) @ mixed[open_]
