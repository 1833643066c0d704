"""Least squares for all rows at once equals a dense factor for each row."""

import pytest
import torch
from layer_cases import dense_fit, layer_case, row_error

from brainsurgeon.engine.layer import least_squares as module
from brainsurgeon.engine.layer.least_squares import least_squares, objective
from brainsurgeon.errors import BrainsurgeonError


def half(shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


def test_float64_equals_the_dense_oracle() -> None:
    weights, moments = layer_case(7, 40)
    pruned = half((7, 40))
    pruned[0], pruned[1] = True, False
    found, notes = least_squares(weights, moments, pruned, tolerance=1e-12, max_iterations=200)
    assert notes == ()
    torch.testing.assert_close(found, dense_fit(weights, moments, pruned), rtol=1e-5, atol=1e-7)
    assert bool((found[pruned] == 0).all())


def test_float32_reaches_the_tolerance_on_the_objective() -> None:
    weights, moments = layer_case(16, 96, dtype=torch.float32)
    pruned = half((16, 96))
    found, notes = least_squares(weights, moments, pruned)
    assert notes == ()
    assert found.dtype == torch.float32
    best = row_error(dense_fit(weights, moments, pruned), weights, moments)
    assert bool((objective(found, weights, moments) <= best * (1 + 2 * module.TOLERANCE) + 1e-9).all())


def test_a_given_right_hand_side() -> None:
    weights, moments = layer_case(5, 30)
    linear = (weights + 0.3 * torch.randn(5, 30, generator=torch.Generator().manual_seed(4))) @ moments
    pruned = half((5, 30))
    found, _ = least_squares(weights, moments, pruned, linear=linear, tolerance=1e-12, max_iterations=200)
    expected = dense_fit(weights, moments, pruned, linear)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    direct = ((expected @ moments) * expected).sum(-1) / 2 - (linear * expected).sum(-1)
    at_start = ((weights @ moments) * weights).sum(-1) / 2 - (linear * weights).sum(-1)
    scales = torch.arange(1.0, 6.0)
    torch.testing.assert_close(
        objective(expected, weights, moments, scales, linear), (direct - at_start) * scales, rtol=1e-8, atol=1e-8
    )


def test_groups_are_layers_of_their_own() -> None:
    cases = [layer_case(4, 18, seed) for seed in range(3)]
    weights, moments = torch.stack([w for w, _ in cases]), torch.stack([a for _, a in cases])
    pruned = half((3, 4, 18))
    found, _ = least_squares(weights, moments, pruned, tolerance=1e-12, max_iterations=200)
    for g, (w, a) in enumerate(cases):
        torch.testing.assert_close(found[g], dense_fit(w, a, pruned[g]), rtol=1e-4, atol=1e-5)


def test_pieces_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, moments = layer_case(11, 24)
    pruned = half((11, 24))
    whole, _ = least_squares(weights, moments, pruned)
    monkeypatch.setattr(module, "PIECE_BYTES", 24 * 8 * 4)
    cut, _ = least_squares(weights, moments, pruned)
    torch.testing.assert_close(cut, whole, rtol=1e-3, atol=1e-4)
    assert len(module.row_pieces(weights)) == 3


def test_dead_inputs_keep_their_weights_and_break_nothing() -> None:
    weights, moments = layer_case(6, 20)
    moments[3], moments[:, 3] = 0.0, 0.0
    pruned = half((6, 20))
    pruned[:, 3] = False
    found, notes = least_squares(weights, moments, pruned, tolerance=1e-12, max_iterations=200)
    live = [j for j in range(20) if j != 3]
    expected = dense_fit(weights[:, live], moments[live][:, live], pruned[:, live])
    assert notes == ()
    torch.testing.assert_close(found[:, live], expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(found[:, 3], weights[:, 3])


def test_singular_moments_and_a_warm_start() -> None:
    weights, _ = layer_case(6, 24, dtype=torch.float32)
    data = torch.randn(8, 24, generator=torch.Generator().manual_seed(2))
    moments = data.T @ data / 8
    pruned = half((6, 24))
    found, _ = least_squares(weights, moments, pruned)
    again, _ = least_squares(weights, moments, pruned, start=found)
    errors = objective(found, weights, moments), objective(again, weights, moments)
    assert bool((errors[0] < 0.9 * objective(weights.masked_fill(pruned, 0), weights, moments)).all())
    assert bool((errors[1] <= errors[0] * 1.001 + 1e-9).all())


def test_too_few_iterations_are_said() -> None:
    weights, moments = layer_case(6, 48)
    _, notes = least_squares(weights, moments, half((6, 48)), tolerance=1e-10, max_iterations=1)
    assert len(notes) == 1
    assert "6 rows" in notes[0]


def test_bad_input_is_refused() -> None:
    weights, moments = layer_case(4, 8)
    pruned = half((4, 8))
    with pytest.raises(BrainsurgeonError, match="moments of shape"):
        least_squares(weights, moments[:4, :4], pruned)
    with pytest.raises(BrainsurgeonError, match="weights of a layer hold NaN"):
        least_squares(weights.masked_fill(pruned, torch.nan), moments, pruned)
    with pytest.raises(BrainsurgeonError, match="linear must have"):
        least_squares(weights, moments, pruned, linear=weights[:2])
    with pytest.raises(BrainsurgeonError, match="positive semi-definite"):
        least_squares(weights, -10_000 * torch.ones(8, 8) + torch.eye(8) * 10_001, pruned)
