"""Swaps only ever lower the objective, and come near the best of all masks."""

import pytest
import torch
from layer_cases import best_mask_error, layer_case

from brainsurgeon.engine.layer.least_squares import refit
from brainsurgeon.engine.layer.patterns import parse_pattern
from brainsurgeon.engine.layer.standard import inverse, standard_form
from brainsurgeon.engine.layer.swaps import improve_by_swaps


@pytest.mark.parametrize("name", ["unstructured", "row", "2:4", "1x4", "2x2"])
@pytest.mark.parametrize("groups", [(), (2,)])
def test_no_row_rises_and_masks_stay_feasible(name: str, groups: tuple[int, ...]) -> None:
    shape = (*groups, 6, 16)
    cases = [layer_case(6, 16, seed) for seed in range(2)]
    weights = torch.stack([w for w, _ in cases]) if groups else cases[0][0]
    moments = torch.stack([a for _, a in cases]) if groups else cases[0][1]
    pattern = parse_pattern(name)
    count = pattern.count(0.5, shape)
    pruned = pattern.prune_lowest(torch.rand(shape, generator=torch.Generator().manual_seed(1)), count)
    problem = standard_form(weights, moments)
    inverted, _ = inverse(problem.moments)
    fit = refit(problem, pruned, inverted)
    swapped = improve_by_swaps(problem, pattern, pruned, fit.distance, inverted, 4, 1e-4)
    before, after = problem.objective(fit.distance), problem.objective(swapped.distance)
    high = pattern.block[0]
    assert bool((after.unflatten(-1, (-1, high)).sum(-1) <= before.unflatten(-1, (-1, high)).sum(-1)).all())
    assert after.sum() < (0.9 if pattern.area == 1 else 1.0) * before.sum()
    assert pattern.feasible(swapped.pruned, count)
    assert swapped.improved[0] > 0


def test_random_masks_of_tiny_rows_come_near_the_best_of_all_masks() -> None:
    pattern = parse_pattern("row")
    total, best = 0.0, 0.0
    for seed in range(4):
        weights, moments = layer_case(1, 10, seed)
        pruned = pattern.prune_lowest(torch.rand(1, 10, generator=torch.Generator().manual_seed(seed)), 5)
        problem = standard_form(weights, moments)
        inverted, _ = inverse(problem.moments)
        distance = refit(problem, pruned, inverted).distance
        swapped = improve_by_swaps(problem, pattern, pruned, distance, inverted, 12, 1e-6)
        total += problem.objective(swapped.distance).item()
        best += best_mask_error(weights, moments, 5)
    assert best * 0.999 <= total <= best * 1.25
