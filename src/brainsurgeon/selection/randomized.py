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
        return self.several(problem, 1)[0]

    def several(self, problem: Problem, count: int) -> list[Tensor]:
        """Return the best few masks of the S drawn, best first."""
        with problem.clock.measure("draws"):
            masks = self._draws(problem)
            return [masks[k] for k in problem.judge.best_masks(masks, count)]

    def _draws(self, problem: Problem) -> list[Tensor]:
        magnitude = problem.weights.abs()
        masks = [problem.budget.lowest(magnitude)]
        for draw in range(1, self.num_draws):
            masks.append(self.draw(problem, magnitude))
            problem.notify(Event("draws", draw + 1, self.num_draws))
        return self._screened(problem, masks)

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
        costs = problem.quadratic.costs(masks)
        ranked = sorted(range(1, len(masks)), key=lambda k: costs[k])
        return [masks[0]] + [masks[k] for k in ranked[: len(masks) // 2]]


def draw_bucketed(magnitude: Tensor, count: int, buckets: int, generator: torch.Generator) -> Tensor:
    """Deal the weights into buckets at random and prune the smallest of each, `count` in all.

    The buckets are the rows of a matrix, sorted all at once; the last entry of some rows is empty.
    """
    size, width = magnitude.numel(), -(-magnitude.numel() // buckets)
    sizes = torch.full((buckets,), width)
    sizes[size - (width - 1) * buckets :] = width - 1
    dealt = torch.full((buckets, width), size)
    dealt[torch.arange(width) < sizes.unsqueeze(1)] = torch.randperm(size, generator=generator)
    dealt = dealt.to(magnitude.device)
    values = torch.cat([magnitude, magnitude.new_full((1,), torch.inf)])[dealt]
    ranked = dealt.gather(1, values.argsort(dim=1, stable=True))
    # Which buckets round up is drawn too, lest the first ones always do.
    turn = torch.randperm(buckets, generator=generator)
    quotas = [Fraction(count * n, size) for n in sizes[turn].tolist()]
    shares = torch.empty(buckets, dtype=torch.long)
    shares[turn] = torch.tensor(apportion(count, quotas, sizes[turn].tolist()))
    chosen = ranked[torch.arange(width, device=dealt.device) < shares.to(dealt.device).unsqueeze(1)]
    pruned = torch.zeros_like(magnitude, dtype=torch.bool)
    pruned[chosen] = True
    return pruned
