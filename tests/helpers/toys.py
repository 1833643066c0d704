"""Small random problems without a network, their optima, and a judge whose loss is any function of a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import reference
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Fisher
from brainsurgeon.engine.problem import Judge, Problem, Selection
from brainsurgeon.engine.quadratic import QuadraticModel

FINE = 1e-9
"""Costs that differ by less are the same."""


@dataclass
class Toy:
    """K gradients of N weights, in float64."""

    G: np.ndarray
    w: np.ndarray
    damping: float = 0.1
    blocks: list[slice] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blocks = self.blocks or [slice(0, len(self.w))]

    @property
    def size(self) -> int:
        return len(self.w)

    def quadratic(self, dtype: torch.dtype = torch.float64, linear: np.ndarray | None = None) -> QuadraticModel:
        """The package's model of this toy, with gradients stored in `dtype`."""
        columns = torch.from_numpy(self.G.T.copy()).to(dtype)
        curvatures = [Fisher(columns[block], self.damping) for block in self.blocks]
        a = None if linear is None else torch.from_numpy(linear)
        return QuadraticModel(torch.from_numpy(self.w), self.blocks, curvatures, a)

    def problem(self, budget: Budget | int, judge: Judge | None = None, seed: int = 0) -> Problem:
        """A problem with a budget or, for a number, with so many weights to prune anywhere."""
        if isinstance(budget, int):
            budget = one_group(self.size, budget)
        generator = torch.Generator().manual_seed(seed)
        return Problem(torch.from_numpy(self.w), budget, generator, self.quadratic(), judge)


def make_toy(seed: int, K: int = 6, N: int = 10, damping: float = 0.1, blocks: list[slice] | None = None) -> Toy:
    """A toy whose gradients are correlated, so that removals cancel one another."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(K, 3)) @ rng.normal(size=(3, N)) + 0.3 * rng.normal(size=(K, N))
    return Toy(G, rng.normal(size=N), damping, blocks or [])


def toys(max_size: int = 12) -> st.SearchStrategy[Toy]:
    """Toys with few or many gradients a weight, in one to three blocks."""

    def build(seed: int, K: int, N: int, cuts: set[int]) -> Toy:
        ends = [0, *sorted(cut for cut in cuts if cut < N), N]
        return make_toy(seed, K, N, 0.1, [slice(a, b) for a, b in pairwise(ends)])

    return st.builds(
        build,
        st.integers(0, 10_000),
        st.integers(1, 16),
        st.integers(2, max_size),
        st.sets(st.integers(1, max_size - 1), max_size=2),
    )


def one_group(size: int, count: int) -> Budget:
    """So many weights, anywhere."""
    return Budget((torch.arange(size),), (count,))


def mask_of(indices: Sequence[int], size: int) -> Tensor:
    """A mask that is True at these indices."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(indices)] = True
    return mask


def indices_of(mask: Tensor) -> list[int]:
    """The indices where a mask is True."""
    return mask.nonzero().squeeze(1).tolist()


@dataclass
class ToyJudge:
    """A judge by any function of a mask (and of weights, where an update asks)."""

    loss: Callable[[Tensor], float]
    slope: Callable[[Tensor], Tensor] | None = None
    weights_loss: Callable[[Tensor], float] | None = None
    cheap: int = 6

    def best_masks(self, masks: Sequence[Tensor], count: int = 1) -> list[int]:
        return sorted(range(len(masks)), key=lambda k: (self.loss(masks[k]), k))[:count]

    def is_better(self, new: Tensor, old: Tensor) -> bool:
        return self.loss(new) < self.loss(old)

    def gradient(self, pruned: Tensor) -> Tensor:
        assert self.slope is not None
        return self.slope(pruned)

    def affordable_gradients(self, most: int) -> int:
        return min(self.cheap, most)

    def best_weights(self, candidates: Sequence[Tensor]) -> int:
        assert self.weights_loss is not None
        losses = [self.weights_loss(candidate) for candidate in candidates]
        return losses.index(min(losses))


def arbitrary_loss(seed: int) -> Callable[[Tensor], float]:
    """A loss that has nothing to do with the quadratic model, but is the same for the same mask."""

    def loss(mask: Tensor) -> float:
        return float(np.random.default_rng([seed, *indices_of(mask)]).random())

    return loss


def quadratic_judge(toy: Toy) -> ToyJudge:
    """The model itself as the loss: its gradient at w − w_P is −Hw_P."""
    quadratic = toy.quadratic()
    return ToyJudge(quadratic.cost, lambda pruned: -quadratic.pressure(pruned))


def problem_of(toy: Toy, budget: Budget | int, seed: int = 0) -> Problem:
    """A problem whose loss is its own quadratic model."""
    return toy.problem(budget, quadratic_judge(toy), seed)


def dense(toy: Toy) -> np.ndarray:
    """H, as large as it is."""
    return reference.block_diagonal(reference.fisher(toy.G, toy.damping), toy.blocks)


def optimum(toy: Toy, count: int) -> float:
    """The least CBS-S cost of so many weights, by brute force."""
    return reference.best_selection(dense(toy), toy.w, count)[0]


def optima_found(selection: Selection, seeds: int, N: int, count: int) -> int:
    """How many of some tiny problems, whose loss is their own model, a selection solves to optimality."""
    found = 0
    for seed in range(seeds):
        toy = make_toy(seed, 6, N)
        problem = problem_of(toy, count)
        found += problem.quadratic.cost(selection(problem)) <= optimum(toy, count) + FINE
    return found


class Conv1D(nn.Module):
    """A linear map with its inputs first, under the name that Hugging Face gives it."""

    def __init__(self, outputs: int, inputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias
