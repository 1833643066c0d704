"""The whole layer solver: near the best of all masks, ahead of the baselines, exact in every pattern."""

import pytest
import torch
from layer_cases import best_mask_error, dense_fit, layer_case, row_error

from brainsurgeon.engine.layer.baselines import sparsegpt, wanda_scores
from brainsurgeon.engine.layer.least_squares import least_squares, objective
from brainsurgeon.engine.layer.patterns import Pattern, parse_pattern
from brainsurgeon.engine.layer.solve import Effort, LayerProblem, solve_layer
from brainsurgeon.errors import BrainsurgeonError


def test_tiny_rows_come_near_the_best_of_all_masks() -> None:
    """Brute force over all masks of a row is the oracle for ADMM alone and for the whole."""
    found, alone, best = 0.0, 0.0, 0.0
    for seed in range(8):
        weights, moments = layer_case(1, 9, seed)
        found += solve_layer(LayerProblem(weights, moments, 4), Effort(swap_rounds=6, tolerance=1e-8)).error
        alone += solve_layer(LayerProblem(weights, moments, 4), Effort(swap_rounds=0, tolerance=1e-8)).error
        best += best_mask_error(weights, moments, 4)
    assert best * 0.9999 <= found <= 1.1 * best
    assert found <= alone <= 1.5 * best


@pytest.mark.parametrize("name", ["unstructured", "row", "2:4"])
def test_ahead_of_the_baselines_with_least_squares(name: str) -> None:
    weights, moments = layer_case(48, 64, dtype=torch.float32)
    pattern = parse_pattern(name)
    count = pattern.count(0.5, weights.shape)
    solution = solve_layer(LayerProblem(weights, moments, count, pattern))
    others = [
        pattern.prune_lowest(wanda_scores(weights, moments), count),
        sparsegpt(weights, moments, pattern, count)[1],
    ]
    errors = [float(objective(least_squares(weights, moments, m)[0], weights, moments).sum()) for m in others]
    assert solution.error < 0.95 * min(errors)
    assert solution.notes == ()


@pytest.mark.parametrize("name", ["unstructured", "row", "2:4", "1x4", "2x2", "4x4 row"])
@pytest.mark.parametrize("groups", [0, 2])
def test_zeros_counts_and_errors_are_exact(name: str, groups: int) -> None:
    cases = [layer_case(8, 16, seed, torch.float32) for seed in range(2)]
    weights = torch.stack([w for w, _ in cases]) if groups else cases[0][0]
    moments = torch.stack([a for _, a in cases]) if groups else cases[0][1]
    scales = torch.rand(weights.shape[:-1], generator=torch.Generator().manual_seed(0)) + 0.1
    pattern = parse_pattern(name)
    count = pattern.count(0.5, weights.shape)
    solution = solve_layer(LayerProblem(weights, moments, count, pattern, scales))
    assert pattern.feasible(solution.pruned, count)
    assert bool((solution.weights[solution.pruned] == 0).all())
    assert solution.weights.dtype == weights.dtype
    flat = zip(weights.view(-1, 8, 16), moments.view(-1, 16, 16), solution.pruned.view(-1, 8, 16), strict=True)
    best = torch.stack([row_error(dense_fit(w, a, p), w, a) for w, a, p in flat])
    assert solution.error == pytest.approx(float((best * scales.view(-1, 8)).sum()), rel=3e-4)


def test_rows_that_count_more_keep_more() -> None:
    weights, moments = layer_case(12, 24)
    scales = torch.ones(12)
    scales[:4] = 1e4
    scales[8:] = 0.0
    pruned = solve_layer(LayerProblem(weights, moments, 144, scales=scales)).pruned.sum(1)
    assert pruned[:4].max() < pruned[4:8].min()
    assert pruned[8:].min() >= 23
    even = solve_layer(LayerProblem(weights, moments, 144, Pattern("row"), scales)).pruned.sum(1)
    assert even.tolist() == [12] * 12


def test_scales_of_rows_and_inputs_do_not_change_the_mask() -> None:
    """W → c W and x_j → t_j x_j are the same problem in other units."""
    weights, moments = layer_case(10, 20)
    units = torch.logspace(-3, 3, 20, dtype=torch.float64)
    problem = LayerProblem(weights, moments, 100)
    other = LayerProblem(7 * weights / units, moments * units * units[:, None], 100)
    first, second = solve_layer(problem), solve_layer(other)
    assert torch.equal(first.pruned, second.pruned)
    torch.testing.assert_close(second.weights, 7 * first.weights / units)


def test_order_of_rows_and_inputs_does_not_matter() -> None:
    weights, moments = layer_case(10, 20)
    rows, inputs = torch.arange(9, -1, -1), torch.randperm(20, generator=torch.Generator().manual_seed(5))
    first = solve_layer(LayerProblem(weights, moments, 110))
    second = solve_layer(LayerProblem(weights[rows][:, inputs], moments[inputs][:, inputs], 110))
    assert torch.equal(second.pruned, first.pruned[rows][:, inputs])


def test_weights_of_dead_inputs_go_first() -> None:
    weights, moments = layer_case(8, 16, dtype=torch.float32)
    moments[[2, 9]], moments[:, [2, 9]] = 0.0, 0.0
    solution = solve_layer(LayerProblem(weights, moments, 64))
    assert bool(solution.pruned[:, [2, 9]].all())
    everything_dead = solve_layer(LayerProblem(weights, torch.zeros(16, 16), 64))
    assert everything_dead.error == 0
    assert int(everything_dead.pruned.sum()) == 64


def test_a_given_right_hand_side_is_used() -> None:
    """With b = W* A for other weights W*, the problem is that of W*."""
    weights, moments = layer_case(10, 24)
    better = weights + 0.5 * torch.randn(10, 24, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    direct = solve_layer(LayerProblem(better, moments, 120), Effort(tolerance=1e-9))
    given = solve_layer(LayerProblem(weights, moments, 120, linear=better @ moments), Effort(tolerance=1e-9))
    constant = float(row_error(better, weights, moments).sum())
    assert given.error + constant == pytest.approx(direct.error, rel=0.1)


@pytest.mark.parametrize("count", [0, 48])
def test_nothing_and_everything(count: int) -> None:
    weights, moments = layer_case(4, 12)
    solution = solve_layer(LayerProblem(weights, moments, count))
    assert int(solution.pruned.sum()) == count
    expected = weights if count == 0 else torch.zeros_like(weights)
    torch.testing.assert_close(solution.weights, expected)


def test_half_precision_weights_stay_so() -> None:
    weights, moments = layer_case(8, 16, dtype=torch.bfloat16)
    solution = solve_layer(LayerProblem(weights, moments.float(), 64))
    assert solution.weights.dtype == torch.bfloat16
    assert int((solution.weights == 0).sum()) >= 64


def test_bad_input_is_refused() -> None:
    weights, moments = layer_case(4, 12)
    broken = weights.clone()
    broken[1, 1] = torch.nan
    with pytest.raises(BrainsurgeonError, match="NaN"):
        solve_layer(LayerProblem(broken, moments, 24))
    with pytest.raises(BrainsurgeonError, match="NaN"):
        solve_layer(LayerProblem(weights, moments * torch.inf, 24))
    with pytest.raises(BrainsurgeonError, match="negative"):
        solve_layer(LayerProblem(weights, moments, 24, scales=-torch.ones(4)))
    with pytest.raises(BrainsurgeonError, match="count 49"):
        solve_layer(LayerProblem(weights, moments, 49))
    with pytest.raises(BrainsurgeonError, match="2:4"):
        solve_layer(LayerProblem(weights[:, :10], moments[:10, :10], 20, parse_pattern("2:4")))
