"""RMP, Algorithm 2: randomised magnitude pruning, the best of many draws by sample loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.engine.problem import Problem
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.clock import pulse


@dataclass(frozen=True)
class Randomized:
    """Deal the weights into B random buckets and prune the smallest of each, S times; keep the best draw.

    `num_buckets` is B (by default min(⌊√N⌋, 1000)), `num_draws` S. The first draw is plain magnitude pruning, as in
    the published experiments. Buckets differ in size by at most one and the count of ⌈rN⌉ is shared out among them
    exactly, where the published code rounds each bucket's share and so prunes too few. With `screen`, the two
    thirds of the draws with the higher cost in the quadratic model are dropped before the loss is asked.
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
        masks, orders = [problem.budget.lowest(problem.weights.abs())], self.orders(problem)
        left = problem.clock.left
        for draw in range(1, self.num_draws):
            if problem.clock.left < left / 2:  # where time is limited, half of it goes to the draws at most
                break
            masks.append(self.draw(problem, orders))
            problem.notify(Event("draws", draw + 1, self.num_draws))
            pulse()
        return self._screened(problem, masks)

    def orders(self, problem: Problem) -> list[np.ndarray]:
        """Return the weights of each group of the budget by magnitude, the smallest first."""
        magnitude = problem.weights.abs()
        return [magnitude[group].argsort(stable=True).cpu().numpy() for group in problem.budget.groups]

    def draw(self, problem: Problem, orders: Sequence[np.ndarray]) -> Tensor:
        """Return one random mask (lines 5 to 12)."""
        pruned = torch.zeros_like(problem.weights, dtype=torch.bool)
        for group, count, order in zip(problem.budget.groups, problem.budget.counts, orders, strict=True):
            chosen = draw_bucketed(order, count, self._buckets(group.numel()), problem.generator)
            pruned[group] = chosen.to(pruned.device)
        return pruned

    def _buckets(self, size: int) -> int:
        wanted = min(math.isqrt(size), 1000) if self.num_buckets is None else self.num_buckets
        return max(1, min(wanted, size))

    def _screened(self, problem: Problem, masks: list[Tensor]) -> list[Tensor]:
        if not self.screen or problem.maybe_quadratic is None or len(masks) < 4:
            return masks
        costs = problem.quadratic.costs(masks)
        ranked = sorted(range(1, len(masks)), key=lambda k: costs[k])
        return [masks[0]] + [masks[k] for k in ranked[: len(masks) // 3]]


def draw_bucketed(order: np.ndarray, count: int, buckets: int, generator: torch.Generator) -> Tensor:
    """Deal weights, given in the order of their magnitude, into buckets at random; prune the smallest of each.

    The buckets are the rows of a matrix of places in that order, sorted all at once; the last entry of some is empty.
    """
    size, width = order.size, -(-order.size // buckets)
    sizes = np.full(buckets, width)
    sizes[size - (width - 1) * buckets :] = width - 1
    places = np.empty(size, np.int32)  # small integers are sorted far faster than magnitudes
    places[order] = np.arange(size, dtype=np.int32)
    dealt = np.full((buckets, width), size, np.int32)
    dealt[np.arange(width) < sizes[:, None]] = places[torch.randperm(size, generator=generator).numpy()]
    dealt.sort(axis=1)
    # Which buckets round up is drawn too, lest the first ones always do.
    turn = torch.randperm(buckets, generator=generator).numpy()
    shares, rest = np.divmod(count * sizes, size)
    shares[turn[np.argsort(-rest[turn], kind="stable")[: count - shares.sum()]]] += 1
    pruned = torch.zeros(size, dtype=torch.bool)
    pruned[torch.from_numpy(order[dealt[np.arange(width) < shares[:, None]]])] = True
    return pruned
