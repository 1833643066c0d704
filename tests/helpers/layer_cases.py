"""Layers that look like trained ones: correlated inputs of very different scales."""

import itertools

import torch
from torch import Tensor


def layer_case(rows: int, inputs: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return weights and damped moments: inputs of low rank plus noise, with heavy-tailed scales."""
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(4 * inputs, max(2, inputs // 4), generator=random, dtype=torch.float64)
    mixed = hidden @ torch.randn(hidden.shape[1], inputs, generator=random, dtype=torch.float64)
    scales = torch.randn(inputs, generator=random, dtype=torch.float64).exp()
    data = (mixed + torch.randn(mixed.shape, generator=random, dtype=torch.float64)) * scales
    moments = data.T @ data / len(data)
    moments += 0.01 * moments.diagonal().mean() * torch.eye(inputs, dtype=torch.float64)
    weights = torch.randn(rows, inputs, generator=random, dtype=torch.float64) / scales
    return weights.to(dtype), moments


def dense_fit(weights: Tensor, moments: Tensor, pruned: Tensor, linear: Tensor | None = None) -> Tensor:
    """Solve every row by a dense factor: the oracle."""
    right = weights.double() @ moments.double() if linear is None else linear.double()
    best = torch.zeros_like(weights, dtype=torch.float64)
    for row in range(len(weights)):
        kept = (~pruned[row]).nonzero().squeeze(1)
        if len(kept):
            best[row, kept] = torch.linalg.solve(moments.double()[kept][:, kept], right[row, kept])
    return best


def row_error(weights: Tensor, trained: Tensor, moments: Tensor) -> Tensor:
    """Return (w − w̄)A(w − w̄)ᵀ/2 of each row."""
    distance = weights.double() - trained.double()
    return ((distance @ moments.double()) * distance).sum(-1) / 2


def best_mask_error(weights: Tensor, moments: Tensor, count: int) -> float:
    """Try every mask of one row."""
    inputs = weights.shape[-1]
    errors = []
    for places in itertools.combinations(range(inputs), count):
        pruned = torch.zeros(1, inputs, dtype=torch.bool)
        pruned[0, list(places)] = True
        errors.append(row_error(dense_fit(weights, moments, pruned), weights, moments).item())
    return min(errors)
