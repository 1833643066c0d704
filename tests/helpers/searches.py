"""Searches on toys: a start that is told, and the swaps of one step."""

from dataclasses import dataclass

from torch import Tensor
from toys import Toy, mask_of

from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.selection import LocalSearch, WideSearch


@dataclass(frozen=True)
class StartAt:
    """A selection that returns what it was told."""

    indices: tuple[int, ...]

    def __call__(self, problem: Problem) -> Tensor:
        return mask_of(self.indices, problem.weights.numel())


def swaps_of(toy: Toy, P: tuple[int, ...], search: LocalSearch | WideSearch) -> list[tuple[int, int]]:
    problem = toy.problem(len(P))
    pruned = mask_of(P, toy.size)
    return search.step(problem, pruned, problem.quadratic.pressure(pruned))
