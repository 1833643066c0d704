"""A pool: a few candidate weights, and everything a search needs to swap among them exactly.

With the other weights fixed, pruning within a pool of M weights is a small dense problem: the M values of
2w_i(Hw_P)_i, the M values of w_i²H_ii and the M×M matrix γ. After a swap the first are updated by two columns of γ,
which is all that the sums over I and J in line 22 of Algorithm 1 amount to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..quadratic import QuadraticModel

Array = np.ndarray


@dataclass
class Pool:
    """Candidates by index, with their part of the quadratic model. Float64 on the CPU: the work is tiny."""

    indices: Tensor
    drift: Array
    self_impact: Array
    gamma: Array

    @classmethod
    def gather(cls, quadratic: QuadraticModel, pressure: Tensor, indices: Tensor) -> Pool:
        """Cut the pool out of the quadratic model, H w_P being `pressure`."""
        return cls(
            indices,
            quadratic.drift(pressure)[indices].cpu().numpy().copy(),
            quadratic.self_impact[indices].cpu().numpy(),
            quadratic.gamma(indices, indices).cpu().numpy(),
        )

    def alpha(self, i: Array | slice | int) -> Array:
        """α of pool members in P."""
        return self.drift[i] - self.self_impact[i]

    def beta(self, j: Array | slice | int) -> Array:
        """β of pool members outside P."""
        return self.drift[j] + self.self_impact[j]

    def change(self, i: int, j: Array) -> Array:
        """Return β_j − γ_ij − α_i: the change of 2Q if i comes back and j goes in its place."""
        return self.beta(j) - self.gamma[i, j] - self.alpha(i)

    def swap(self, i: int, j: int) -> None:
        """Bring i back and prune j."""
        self.drift += self.gamma[:, j] - self.gamma[:, i]
