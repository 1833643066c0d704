"""Exactly the k lowest of many numbers, in slices, on any device; ties go to the lowest index."""

from __future__ import annotations

import torch
from torch import Tensor

# A GPU's own selection gives a slice to one block: from the first length on sorting is faster, and from the second on
# the indices of a sort take too much memory, so that the bits are bisected.
LONG_SLICE = 1 << 15
HUGE_SLICE = 1 << 25


def lowest(scores: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` lowest of each row of `scores` (S x n)."""
    if count <= 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    if count >= scores.shape[-1]:
        return torch.ones_like(scores, dtype=torch.bool)
    return _up_to(scores, kth_lowest(scores, count), count)


def lowest_even(scores: Tensor, total: int) -> Tensor:
    """Return the mask of `total` lowest scores with counts per row that differ by at most one.

    Every row gives ⌊total / S⌋; the rest comes from the rows whose next score is lowest.
    """
    rows = scores.shape[0]
    base, extra = divmod(total, rows)
    if not extra:
        return lowest(scores, base)
    following = kth_lowest(scores, base + 1)
    richer = lowest(following.T, extra).T
    threshold = torch.where(richer, following, kth_lowest(scores, base)) if base else following
    return _up_to(scores, threshold, base + richer.int())


def lowest_by_rank(scores: Tensor, counts: Tensor) -> Tensor:
    """Return the mask of the `counts[s]` lowest of each row, for counts that may differ freely."""
    order = scores.argsort(dim=-1, stable=True)
    chosen = torch.arange(scores.shape[-1], device=scores.device) < counts.unsqueeze(-1)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, order, chosen.expand_as(scores))


def ranks_in_groups(scores: Tensor) -> Tensor:
    """Return the rank of each number among the last dimension, which is short (the m of n:m)."""
    ranks = torch.zeros(scores.shape, dtype=torch.int16, device=scores.device)
    for j in range(scores.shape[-1]):  # over places in a group, never over groups
        own = scores[..., j : j + 1]
        ranks[..., j] = (scores < own).sum(-1, dtype=torch.int16)
        ranks[..., j] += (scores[..., :j] == own).sum(-1, dtype=torch.int16)
    return ranks


def kth_lowest(scores: Tensor, count: int) -> Tensor:
    """Return the `count`-th lowest number of each row, as a column."""
    if scores.is_cuda and scores.shape[-1] >= HUGE_SLICE:
        return _kth_by_bits(scores, count)
    if scores.is_cuda and scores.shape[-1] >= LONG_SLICE:
        return scores.sort(dim=-1).values[..., count - 1 : count]
    return scores.kthvalue(count, dim=-1, keepdim=True).values


def _up_to(scores: Tensor, threshold: Tensor, count: int | Tensor) -> Tensor:
    chosen = scores < threshold
    ties = scores == threshold
    missing = count - chosen.sum(-1, keepdim=True, dtype=torch.int32)
    return chosen | (ties & (ties.cumsum(-1, dtype=torch.int32) <= missing))


def _kth_by_bits(scores: Tensor, count: int) -> Tensor:
    """Bisect over the bits of the numbers: as integers they have the same order. No copy to the host."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[scores.element_size()]
    limits = torch.iinfo(whole)
    keys = scores.contiguous().view(whole)
    keys = torch.where(keys < 0, keys ^ limits.max, keys)
    low = torch.full_like(keys[:, :1], limits.min)
    high = torch.full_like(low, limits.max)
    for _ in range(limits.bits):
        middle = (low & high) + ((low ^ high) >> 1)  # the mean, rounded down, without overflow
        enough = (keys <= middle).sum(-1, keepdim=True) >= count
        high = torch.where(enough, middle, high)
        low = torch.where(enough, low, middle + 1).minimum(high)
    return torch.where(high < 0, high ^ limits.max, high).view(scores.dtype)
