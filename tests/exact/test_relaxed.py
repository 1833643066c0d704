"""Rounding the continuous relaxation: exact counts on weights of every size."""

import torch

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Fisher
from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.selection import Magnitude
from brainsurgeon.exact.relaxed import Relaxed


def test_weights_far_below_the_largest_do_not_upset_it() -> None:
    """Gradients in single precision, few for many weights, which go from 1 down to 1e-9: no overflow, a good mask."""
    generator = torch.Generator().manual_seed(0)
    size, count = 1500, 1000
    columns = torch.randn(size, 12, generator=generator)
    w = torch.logspace(0, -9, size)[torch.randperm(size, generator=generator)].double()
    quadratic = QuadraticModel(w, [slice(0, size)], [Fisher(columns, 1e-5)])
    budget = Budget((torch.arange(size),), (count,))
    problem = Problem(w, budget, generator, quadratic)
    found = Relaxed(2.0)(problem)
    budget.check(found)
    assert quadratic.cost(found) <= quadratic.cost(Magnitude()(problem))
