"""RMP, Algorithm 2: randomised magnitude pruning, the best of many draws by sample loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import BrainsurgeonError
from ..events import Event
from ..mask import apportion
from ..problem import Problem


@dataclass(frozen=True)
class Randomized:
    """Deal the weights into B random buckets and prune the smallest of each, S times; keep the best draw.

    `num_buckets` is B (by default min(⌊√N⌋, 1000)), `num_draws` S. The first draw is plain magnitude pruning, as in
    the published experiments. Buckets differ in size by at most one and the count of ⌈rN⌉ is shared out among them
    exactly, where the published code rounds each bucket's share and so prunes too few. With `screen`, the half of the
    draws with the higher cost in the quadratic model is dropped before the loss is asked.
    """

    num_buckets: int | None = None
    num_draws: int = 50
    screen: bool = True

    uses_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.num_draws < 1 or (self.num_buckets is not None and self.num_buckets < 1):
            raise BrainsurgeonError(f"num_draws and num_buckets must be at least 1, got {self}")

    @property
    def uses_curvature(self) -> bool:
        """Only for the screening."""
        return self.screen

    def __call__(self, problem: Problem) -> Tensor:
        """Return the best mask (lines 4 to 16)."""
        with problem.clock.measure("draws"):
            return self._best_draw(problem)

    def _best_draw(self, problem: Problem) -> Tensor:
        magnitude = problem.weights.abs()
        masks = [problem.budget.lowest(magnitude)]
        for draw in range(1, self.num_draws):
            masks.append(self.draw(problem, magnitude))
            problem.notify(Event("draws", draw + 1, self.num_draws))
        masks = self._screened(problem, masks)
        return masks[problem.judge.best_mask(masks)]

    def draw(self, problem: Problem, magnitude: Tensor) -> Tensor:
        """Return one random mask (lines 5 to 12)."""
        pruned = torch.zeros_like(magnitude, dtype=torch.bool)
        for group, count in zip(problem.budget.groups, problem.budget.counts, strict=True):
            chosen = draw_bucketed(magnitude[group], count, self._buckets(group.numel()), problem.generator)
            pruned[group] = chosen
        return pruned

    def _buckets(self, size: int) -> int:
        wanted = min(math.isqrt(size), 1000) if self.num_buckets is None else self.num_buckets
        return max(1, min(wanted, size))

    def _screened(self, problem: Problem, masks: list[Tensor]) -> list[Tensor]:
        if not self.screen or problem.maybe_quadratic is None or len(masks) < 4:
            return masks
        costs = [problem.quadratic.cost(mask) for mask in masks]
        ranked = sorted(range(1, len(masks)), key=lambda k: costs[k])
        return [masks[0]] + [masks[k] for k in ranked[: len(masks) // 2]]


def draw_bucketed(magnitude: Tensor, count: int, buckets: int, generator: torch.Generator) -> Tensor:
    """Deal the weights into buckets at random and prune the smallest of each, `count` in all.

    All buckets at once: one sort by (bucket, magnitude) ranks every weight within its bucket.
    """
    size = magnitude.numel()
    order = torch.randperm(size, generator=generator).to(magnitude.device)  # the dealer's pack
    sizes = [size // buckets + (k < size % buckets) for k in range(buckets)]
    # Which buckets round up is drawn too, lest the first ones always do.
    turn = torch.randperm(buckets, generator=generator).tolist()
    shares = apportion(count, [Fraction(count * sizes[k], size) for k in turn], [sizes[k] for k in turn])
    share_of = torch.empty(buckets, dtype=torch.long)
    share_of[torch.tensor(turn)] = torch.tensor(shares)
    bucket = torch.repeat_interleave(torch.arange(buckets), torch.tensor(sizes)).to(magnitude.device)
    by_size = magnitude[order].argsort(stable=True)
    ranked = by_size[bucket[by_size].argsort(stable=True)]  # by bucket, then by magnitude
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0).to(magnitude.device)
    rank = torch.arange(size, device=magnitude.device) - starts[bucket]
    pruned = torch.zeros_like(magnitude, dtype=torch.bool)
    pruned[order[ranked]] = rank < share_of.to(magnitude.device)[bucket]
    return pruned
