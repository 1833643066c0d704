"""The order in which samples are drawn: each once, or as often as its weight says; and what draws them."""

from __future__ import annotations

import torch
from torch import Tensor


def generator_of(seed: int) -> torch.Generator:
    """Return a generator for a seed that was made of others: a large one goes round, as torch's own negative ones."""
    return torch.Generator().manual_seed(seed % 2**64)


def drawn(size: int, generator: torch.Generator, weights: Tensor | None = None) -> Tensor:
    """Return `size` numbers below `size` in random order: each once or, with weights, i about wᵢ/w̄ times.

    The draws are systematic: of weights with a mean of one, i is drawn ⌊wᵢ⌋ or ⌈wᵢ⌉ times, and wᵢ times on average. So
    even weights give each number once.
    """
    order = torch.randperm(size, generator=generator)
    if weights is None:
        return order
    ends = weights.double()[order].cumsum(0)
    places = (torch.arange(size, dtype=torch.float64) + torch.rand(1, generator=generator)) * (ends[-1] / size)
    picked = torch.searchsorted(ends, places, right=True).clamp(max=size - 1)
    return order[picked][torch.randperm(size, generator=generator)]
