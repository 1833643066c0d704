"""ADMM does what its text says: a twin with plain solves, iteration by iteration."""

import pytest
import torch
from layer_cases import dense_fit, layer_case, row_error
from torch import Tensor

from brainsurgeon.engine.layer.admm import RELAXATION, SETTLED, Penalties, admm_mask
from brainsurgeon.engine.layer.patterns import Pattern, parse_pattern
from brainsurgeon.engine.layer.standard import Standard, standard_form
from brainsurgeon.errors import BrainsurgeonError


def twin(problem: Standard, pattern: Pattern, count: int, schedule: Penalties) -> tuple[Tensor, Tensor]:
    """X by a solve, D the largest of X + V/ρ, V += ρ(X − D); X is taken 1.6 times as far from D as it lies."""
    trained, slope = problem.weights, 0.0 if problem.slope is None else problem.slope
    pruned = pattern.project(trained.square(), count)
    feasible, multiplier = trained * ~pruned, torch.zeros_like(trained)
    for step in range(2 * schedule.steps):
        rho = schedule.first * (schedule.last / schedule.first) ** (
            step // schedule.hold * schedule.hold / schedule.steps
        )
        system = problem.moments + rho * torch.eye(trained.shape[-1], dtype=trained.dtype)
        right = trained @ problem.moments + slope + rho * feasible - multiplier
        fitted = RELAXATION * torch.linalg.solve(system, right.T).T + (1 - RELAXATION) * feasible
        chosen = pattern.project((fitted + multiplier / rho).square(), count)
        feasible = (fitted + multiplier / rho) * ~chosen
        multiplier = multiplier + rho * (fitted - feasible)
        moved, pruned = int((chosen != pruned).sum()), chosen
        if step + 1 >= schedule.steps // 2 and moved <= 2 * SETTLED * max(1, trained.numel() - count):
            break
    return pruned, feasible - trained


@pytest.mark.parametrize("name", ["unstructured", "2:4"])
@pytest.mark.parametrize("sloped", [False, True])
def test_masks_and_distances_are_those_of_plain_solves(name: str, sloped: bool) -> None:
    weights, moments = layer_case(6, 16, seed=4)
    other = weights + 0.3 * torch.randn(6, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    problem = standard_form(weights, moments, linear=other @ moments if sloped else None)
    assert (problem.slope is not None) == sloped
    pattern, schedule = parse_pattern(name), Penalties(12, 3)
    pruned, distance = admm_mask(problem, pattern, 48, schedule)
    expected, far = twin(problem, pattern, 48, schedule)
    assert torch.equal(pruned, expected)
    torch.testing.assert_close(distance, far, rtol=1e-7, atol=1e-9)


def test_admm_beats_its_start_and_settles() -> None:
    weights, moments = layer_case(24, 48)
    problem = standard_form(weights, moments)
    pattern = Pattern()
    start = pattern.prune_lowest(problem.weights.square(), 576)
    found, _ = admm_mask(problem, pattern, 576)
    longer, _ = admm_mask(problem, pattern, 576, Penalties(96))
    errors = [float(row_error(dense_fit(weights, moments, m), weights, moments).sum()) for m in (start, found, longer)]
    assert errors[1] < 0.85 * errors[0]
    assert errors[2] < 1.01 * errors[1]
    with pytest.raises(BrainsurgeonError, match="at least one step"):
        Penalties(0)
