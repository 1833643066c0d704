"""Low-rank Fisher matrices beside their dense twins, in every shape and storage."""

import numpy as np
import pytest
import reference
import torch
from torch import Tensor
from toys import Toy, make_toy

from brainsurgeon.engine.curvature import Fisher

SHAPES = [(4, 12), (12, 12), (30, 12)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=["K<n", "K=n", "K>n"])
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 1e-3}


def build(shape: tuple[int, int], dtype: torch.dtype) -> tuple[Toy, Fisher, np.ndarray]:
    """A toy whose gradients are what the storage holds, so that only arithmetic can differ."""
    toy = make_toy(7, *shape, damping=0.05)
    columns = torch.from_numpy(toy.G.T.copy()).to(dtype)
    toy.G = columns.double().numpy().T
    return toy, Fisher(columns, toy.damping), reference.fisher(toy.G, toy.damping)


def assert_close(found: Tensor, expected: np.ndarray, dtype: torch.dtype) -> None:
    assert found.dtype == torch.float64
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=TOLERANCE[dtype] * scale)


def ill_conditioned(K: int, n: int, damping: float = 0.01) -> tuple[Fisher, np.ndarray, torch.Generator]:
    """Gradients that five directions dominate, in float32: their sums are rounded far more than the damping is."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(n, 5, generator=generator) @ torch.randn(5, K, generator=generator)
    columns += 0.1 * torch.randn(n, K, generator=generator)
    return Fisher(columns, damping), reference.fisher(columns.double().numpy().T, damping), generator
