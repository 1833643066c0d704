"""Gram curvatures and the dense matrices that they stand for."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.engine.curvature import Gram


def build(groups: int, rows: int, inputs: int, seed: int = 0, damping: float = 0.1) -> Gram:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(groups, inputs, inputs + 2))
    moments = torch.from_numpy(x @ x.transpose(0, 2, 1) / x.shape[2])
    return Gram(moments, torch.from_numpy(rng.uniform(0.1, 2.0, rows)), damping)


def dense(curvature: Gram) -> np.ndarray:
    """H, row by row: c_o(A + λāI) on the diagonal and nothing between two rows."""
    A, c = curvature.moments.numpy(), curvature.scales.numpy()
    groups, m, _ = A.shape
    level = np.mean([A[g, i, i] for g in range(groups) for i in range(m)])
    H = np.zeros((len(c) * m, len(c) * m))
    for row, scale in enumerate(c):
        own = slice(row * m, (row + 1) * m)
        H[own, own] = scale * (A[row // (len(c) // groups)] + curvature.damping * level * np.eye(m))
    return H


def vector(size: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size)


def kept_inverse_diagonal(H: np.ndarray, kept: Sequence[int]) -> np.ndarray:
    found = np.ones(len(H))
    found[kept] = np.diag(np.linalg.inv(H[np.ix_(kept, kept)]))
    return found


def assert_close(found: Tensor, expected: np.ndarray) -> None:
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-10)
