"""A pool: a few candidate weights, and everything a search needs to swap among them exactly.

With the other weights fixed, pruning within a pool of M weights is a small dense problem: the M values of
2w_i(Hw_P)_i, the M values of w_i²H_ii and the M×M matrix γ. After a swap the first are updated by two columns of γ,
which is all that the sums over I and J in line 22 of Algorithm 1 amount to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.engine.quadratic import QuadraticModel

Array = np.ndarray


@dataclass
class Pool:
    """Candidates by index, with their part of the quadratic model. Float64 on the CPU: the work is tiny."""

    indices: Tensor
    drift: Array
    self_impact: Array
    gamma: Array

    @classmethod
    def gather(cls, quadratic: QuadraticModel, drift: Tensor, indices: Tensor, stiffness: float = 1.0) -> Pool:
        """Cut the pool out of the quadratic model, with its curvature multiplied by `stiffness`."""
        return cls(
            indices,
            drift[indices].cpu().numpy().copy(),
            stiffness * quadratic.self_impact[indices].cpu().numpy(),
            stiffness * quadratic.gamma(indices, indices).cpu().numpy(),
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

    def descend(self, inside: int, min_improvement: float, most: int) -> list[tuple[int, int]]:
        """Take the best swap of the whole pool until none improves 2Q by ε; a weight moves at most once.

        The first `inside` members are in P, the others not. Returns (i back, j pruned) by index, in order.
        """
        back, gone = np.arange(inside), np.arange(inside, self.drift.size)
        between = self.gamma[:inside, inside:]
        open_i, open_j = np.zeros(back.size), np.zeros(gone.size)  # ∞ once moved
        swaps: list[tuple[int, int]] = []
        while len(swaps) < most:
            change = (self.beta(gone) + open_j)[None, :] - between - (self.alpha(back) - open_i)[:, None]
            i, j = divmod(int(change.argmin()), gone.size)
            if not change[i, j] <= -min_improvement:
                break
            self.swap(i, inside + j)
            open_i[i] = open_j[j] = np.inf
            swaps.append((int(self.indices[i]), int(self.indices[inside + j])))
        return swaps


def shift(quadratic: QuadraticModel, swaps: list[tuple[int, int]]) -> Tensor:
    """Return the change of the pruned weights' vector w_P by these swaps (i back, j pruned)."""
    moved = torch.zeros_like(quadratic.w)
    if swaps:
        back, gone = torch.tensor(swaps, device=moved.device).T
        moved[gone] = quadratic.w[gone]
        moved[back] = -quadratic.w[back]
    return moved


def extremes(impact: Tensor, inside: Tensor, outside: Tensor, size: int) -> tuple[Tensor, int]:
    """Return the `size` weights of highest α inside P and of lowest β outside, and how many are inside."""
    front = inside[impact[inside].topk(min(size, inside.numel())).indices]
    behind = outside[impact[outside].topk(min(size, outside.numel()), largest=False).indices]
    return torch.cat([front, behind]), front.numel()
