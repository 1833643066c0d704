"""How one layer is pruned, given its trained weights and the moments of its inputs: one callable, several kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Gram
from brainsurgeon.engine.layer.baselines import sparsegpt, wanda_scores
from brainsurgeon.engine.layer.least_squares import least_squares, objective
from brainsurgeon.engine.layer.solve import Effort, LayerProblem, LayerSolution, solve_layer
from brainsurgeon.engine.problem import Problem, Selection, Update
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.errors import BrainsurgeonError


class LayerSolver(Protocol):
    """A way of pruning one layer. Frozen dataclasses with a `__call__` serve well."""

    def __call__(self, problem: LayerProblem) -> LayerSolution:
        """Return the pruned layer, with exactly the count that was asked for in the pattern."""


@dataclass(frozen=True)
class Admm:
    """The mask by ADMM, the weights by least squares, then swaps: nearly the best that a layer alone can have."""

    steps: int = Effort.admm_steps
    swap_rounds: int = 1

    def __call__(self, problem: LayerProblem) -> LayerSolution:
        """Return the pruned layer."""
        return solve_layer(problem, Effort(admm_steps=self.steps, swap_rounds=self.swap_rounds))


@dataclass(frozen=True)
class Scored:
    """Prune the lowest scores: |w|√A_jj ("wanda") or |w| ("magnitude"); with `refit` least squares on what stays."""

    score: str = "wanda"
    refit: bool = False

    def __post_init__(self) -> None:
        if self.score not in ("wanda", "magnitude"):
            raise BrainsurgeonError(f'a score is "wanda" or "magnitude", got {self.score!r}')

    def __call__(self, problem: LayerProblem) -> LayerSolution:
        """Return the pruned layer."""
        scores = problem.weights.abs()
        if self.score == "wanda":
            scores = wanda_scores(problem.weights, problem.moments, problem.squares)
        pruned = problem.pattern.prune_lowest(scores, problem.count)
        weights = problem.weights.masked_fill(pruned, 0.0)
        notes: tuple[str, ...] = ()
        if self.refit:
            weights, notes = least_squares(problem.weights, problem.moments, pruned, linear=problem.linear)
        error = objective(weights, problem.weights, problem.moments, problem.scales, problem.linear)
        return LayerSolution(weights, pruned, float(error.sum()), notes)


@dataclass(frozen=True)
class SparseGPT:
    """Column after column, each pruned weight's error passed on to the columns after it."""

    block: int = 128
    refit: bool = False

    def __call__(self, problem: LayerProblem) -> LayerSolution:
        """Return the pruned layer."""
        found = sparsegpt(problem.weights, problem.moments, problem.pattern, problem.count, self.block)
        weights, pruned = found[0], found[1]
        notes: tuple[str, ...] = ()
        if self.refit:
            weights, notes = least_squares(problem.weights, problem.moments, pruned, linear=problem.linear)
        error = objective(weights, problem.weights, problem.moments, problem.scales, problem.linear)
        return LayerSolution(weights, pruned, float(error.sum()), notes)


@dataclass(frozen=True)
class Selected:
    """Any selection and update of the engine, on the layer's own quadratic model: the same objects as on the Fisher."""

    selection: Selection
    update: Update
    seed: int = field(default=0)

    def __call__(self, problem: LayerProblem) -> LayerSolution:
        """Return the pruned layer; the pattern must leave the count to the layer."""
        if str(problem.pattern) != "unstructured":
            raise BrainsurgeonError(f"this selection knows no patterns, got {problem.pattern}: take another solver")
        flat = problem.weights.reshape(-1)
        rows = problem.weights.shape[:-1].numel()
        scales = torch.ones(rows, dtype=torch.float64, device=flat.device)
        if problem.scales is not None:
            scales = problem.scales.double().reshape(-1)
        moments = problem.moments.double().reshape(-1, *problem.moments.shape[-2:])
        quadratic = QuadraticModel(flat, [slice(0, flat.numel())], [Gram(moments, scales, 1e-9)])
        group = torch.arange(flat.numel(), device=flat.device)
        generator = torch.Generator().manual_seed(self.seed)
        task = Problem(flat, Budget((group,), (problem.count,)), generator, quadratic)
        pruned = self.selection(task)
        task.budget.check(pruned)
        new = task.changed(pruned, self.update(task, pruned).double()).view(problem.weights.shape)
        error = objective(new, problem.weights, problem.moments, problem.scales, problem.linear)
        return LayerSolution(new, pruned.view(problem.weights.shape), float(error.sum()))
