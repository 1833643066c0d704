"""Wanda and SparseGPT by their definitions, with exact counts."""

import pytest
import torch
from layer_cases import dense_fit, layer_case, row_error

from brainsurgeon.engine.layer.baselines import sparsegpt, wanda_scores
from brainsurgeon.engine.layer.patterns import parse_pattern


def test_wanda_is_weight_times_input_norm() -> None:
    weights, moments = layer_case(3, 5)
    expected = [[abs(float(weights[i, j])) * float(moments[j, j]) ** 0.5 for j in range(5)] for i in range(3)]
    torch.testing.assert_close(wanda_scores(weights, moments), torch.tensor(expected, dtype=torch.float64))


def sequential(weights: torch.Tensor, moments: torch.Tensor, pruned: torch.Tensor) -> torch.Tensor:
    """Remove the masked weights from left to right, each time with the best update of the columns to its right."""
    current = weights.clone()
    for j in range(weights.shape[1]):
        inverted = torch.linalg.inv(moments[j:, j:])
        error = torch.where(pruned[:, j], current[:, j], 0.0) / inverted[0, 0]
        current[:, j:] -= error[:, None] * inverted[0]
    return current.masked_fill(pruned, 0.0)


@pytest.mark.parametrize("name", ["unstructured", "row", "2:4", "1x4", "2x2"])
@pytest.mark.parametrize("block", [4, 7, 128])
def test_sparsegpt_is_the_sequential_surgeon(name: str, block: int) -> None:
    weights, moments = layer_case(6, 24)
    pattern = parse_pattern(name)
    count = pattern.count(0.5, weights.shape)
    found, pruned = sparsegpt(weights, moments, pattern, count, block)
    assert pattern.feasible(pruned, count)
    torch.testing.assert_close(found, sequential(weights, moments, pruned), rtol=1e-6, atol=1e-8)
    best = row_error(dense_fit(weights, moments, pruned), weights, moments).sum()
    error = row_error(found, weights, moments).sum()
    assert best <= error < row_error(weights.masked_fill(pruned, 0.0), weights, moments).sum()


def test_first_mask_is_that_of_the_published_scores() -> None:
    """In one block the scores are w²/[U_jj]² of the trained weights, U from A⁻¹ = UᵀU."""
    weights, moments = layer_case(5, 12)
    upper = torch.linalg.cholesky(torch.linalg.inv(moments), upper=True)
    pattern = parse_pattern("unstructured")
    _, pruned = sparsegpt(weights, moments, pattern, 30)
    assert torch.equal(pruned, pattern.prune_lowest((weights / upper.diagonal()).square(), 30))


def test_groups_and_uneven_rows() -> None:
    cases = [layer_case(3, 10, seed) for seed in range(2)]
    weights, moments = torch.stack([w for w, _ in cases]), torch.stack([a for _, a in cases])
    for name, count in (("unstructured", 31), ("row", 31)):
        pattern = parse_pattern(name)
        found, pruned = sparsegpt(weights, moments, pattern, count, 4)
        assert pattern.feasible(pruned, count)
        for g, (w, a) in enumerate(cases):
            torch.testing.assert_close(found[g], sequential(w, a, pruned[g]), rtol=1e-6, atol=1e-8)
