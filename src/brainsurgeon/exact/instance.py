"""A small pruning problem, dense: what every exact method is given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.errors import BrainsurgeonError

Array = np.ndarray

LARGEST = 2000
"""Weights of the largest instance whose N×N matrix is formed; larger ones are for certificates, not for solvers."""


@dataclass(frozen=True, eq=False)
class Instance:
    """N weights w and the quadratic model Q(d) = aᵀd + ½dᵀHd around them, in float64.

    In terms of y, 1 where a weight is pruned, the two costs of a set P are
    *selection* (CBS-S), ½yᵀMy + cᵀy with M_ij = w_iH_ijw_j and c = −a∘w; and
    *joint* (CBS), the least Q over all d with d = −w on P.
    """

    weights: Array
    hessian: Array
    linear: Array

    def __post_init__(self) -> None:
        shapes = self.weights.shape, self.hessian.shape, self.linear.shape
        size = self.weights.size
        if shapes != ((size,), (size, size), (size,)) or size == 0:
            raise BrainsurgeonError(f"an instance needs w (N), H (N×N) and a (N) with N ≥ 1, got shapes {shapes}")
        if not all(np.isfinite(part).all() for part in (self.weights, self.hessian, self.linear)):
            raise BrainsurgeonError("the weights or the curvature of this instance are not finite; check the gradients")
        if self.spectrum[0][0] <= 0:
            raise BrainsurgeonError(
                f"the curvature must be positive definite, its smallest eigenvalue is {self.spectrum[0][0]:g}: "
                "raise the damping"
            )

    @classmethod
    def from_gradients(cls, gradients: Any, weights: Any, damping: float, linear: Any = None) -> Instance:
        """Build H = GᵀG/K + λI from K×N gradients."""
        G, w = np.asarray(gradients, np.float64), np.asarray(weights, np.float64)
        if G.ndim != 2 or w.shape != G.shape[1:]:
            raise BrainsurgeonError(f"expected gradients (K×N) and weights (N), got shapes {G.shape} and {w.shape}")
        _check_size(w.size)
        a = np.zeros_like(w) if linear is None else np.asarray(linear, np.float64)
        return cls(w, G.T @ G / len(G) + damping * np.eye(w.size), a)

    @classmethod
    def from_quadratic(cls, quadratic: QuadraticModel) -> Instance:
        """Write the quadratic model of a few weights out in full."""
        _check_size(quadratic.size)
        hessian = np.zeros((quadratic.size, quadratic.size))
        for curvature, block in zip(quadratic.curvatures, quadratic.blocks, strict=True):
            every = torch.arange(curvature.size, device=quadratic.weights.device)
            hessian[block, block] = curvature.submatrix(every, every).cpu().numpy()
        w = quadratic.w.cpu().numpy()
        a = np.zeros_like(w) if quadratic.linear is None else quadratic.linear.cpu().numpy().astype(np.float64)
        return cls(w, (hessian + hessian.T) / 2, a)

    @property
    def size(self) -> int:
        """N."""
        return self.weights.size

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """The eigenvalues of H, rising, and its eigenvectors."""
        values, vectors = np.linalg.eigh(self.hessian)
        return values, vectors

    @cached_property
    def inverse_diagonal(self) -> Array:
        """[H⁻¹]_ii."""
        values, vectors = self.spectrum
        return (vectors**2 / values).sum(1)

    @cached_property
    def factor(self) -> tuple[Array, float]:
        """Return F (rank × N) and λ with H = FᵀF + λI: few rows where there were few gradients."""
        values, vectors = self.spectrum
        rest = values - values[0]
        large = rest > 1e-12 * values[-1]
        return (vectors[:, large] * np.sqrt(rest[large])).T, float(values[0])

    @cached_property
    def quadratic_form(self) -> Array:
        """M_ij = w_iH_ijw_j."""
        return self.weights[:, None] * self.hessian * self.weights

    @cached_property
    def linear_form(self) -> Array:
        """Return c = −a∘w."""
        return -self.linear * self.weights

    @cached_property
    def centre(self) -> Array:
        """Return v = w − H⁻¹a, the best weights if nothing is pruned: Q(x − w) = ½(x−v)ᵀH(x−v) + `floor`."""
        return self.weights - np.linalg.solve(self.hessian, self.linear)

    @property
    def floor(self) -> float:
        """−½aᵀH⁻¹a, the least Q of all."""
        return float(-self.linear @ (self.weights - self.centre) / 2)

    def selection_cost(self, pruned: Array) -> float:
        """Q of pruning P and changing nothing else (CBS-S)."""
        return float(self.quadratic_form[np.ix_(pruned, pruned)].sum() / 2 + self.linear_form[pruned].sum())

    def update(self, pruned: Array) -> Array:
        """Return the best d with d = −w on P (CBS-U)."""
        kept = ~pruned
        step = np.where(pruned, -self.weights, 0.0)
        right = -self.linear[kept] - self.hessian[np.ix_(kept, pruned)] @ step[pruned]
        step[kept] = np.linalg.solve(self.hessian[np.ix_(kept, kept)], right)
        return step

    def step_cost(self, step: Array) -> float:
        """Q(d)."""
        return float(step @ self.hessian @ step / 2 + self.linear @ step)

    def joint_cost(self, pruned: Array) -> float:
        """Q of pruning P and updating the rest (CBS)."""
        return self.step_cost(self.update(pruned))


def as_instance(problem: Instance | Problem | QuadraticModel) -> Instance:
    """Take a problem of any kind as a dense instance."""
    if isinstance(problem, Instance):
        return problem
    if isinstance(problem, Problem):
        return Instance.from_quadratic(problem.quadratic)
    if isinstance(problem, QuadraticModel):
        return Instance.from_quadratic(problem)
    raise BrainsurgeonError(
        f"expected a brainsurgeon.Problem, a QuadraticModel or an exact.Instance (Instance.from_gradients builds one), "
        f"got {type(problem).__name__}"
    )


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise BrainsurgeonError(
            f"{size:,} weights are too many to solve exactly (at most {LARGEST:,}): take a part of them, "
            "or ask for a certificate (result.certify)"
        )
