"""Unit coordinates: the same problem, with unit diagonal, and back."""

import pytest
import torch
from layer_cases import layer_case, row_error

from brainsurgeon.engine.layer.standard import check_layer, dot, inverse, standard_form
from brainsurgeon.errors import BrainsurgeonError


def test_the_objective_in_unit_coordinates_is_that_of_the_layer(generator: torch.Generator) -> None:
    """Σ_o c_o[(w−w̄)A(w−w̄)ᵀ/2 − (w−w̄)sᵀ], divided by the mean of c; the residual is minus its gradient."""
    weights, moments = layer_case(5, 8)
    other = weights + torch.randn(5, 8, generator=generator, dtype=torch.float64)
    scales = torch.rand(5, generator=generator, dtype=torch.float64) + 0.1
    linear = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    problem = standard_form(weights, moments, scales, linear)
    torch.testing.assert_close(problem.moments.diagonal(), torch.ones(8, dtype=torch.float64))
    unit = (scales / scales.mean()).sqrt().unsqueeze(1) * moments.diagonal().sqrt()
    torch.testing.assert_close(problem.weights, weights * unit)
    distance = problem.distance_of(other, weights).requires_grad_()
    slope = linear - weights @ moments
    expected = scales / scales.mean() * (row_error(other, weights, moments) - ((other - weights) * slope).sum(1))
    found = problem.objective(distance)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), distance)
    torch.testing.assert_close(problem.residual(distance), -gradient)


def test_weights_of_a_distance_are_the_weights_again_and_rows_are_a_part(generator: torch.Generator) -> None:
    weights, moments = layer_case(6, 8)
    other = weights + torch.randn(6, 8, generator=generator, dtype=torch.float64)
    problem = standard_form(weights, moments, torch.rand(6, generator=generator))
    torch.testing.assert_close(problem.weights_of(problem.distance_of(other, weights), weights), other)
    part = problem.rows(slice(2, 5))
    distance = problem.distance_of(other, weights)
    torch.testing.assert_close(part.objective(distance[2:5]), problem.objective(distance)[2:5])


def test_a_dead_input_costs_nothing_and_keeps_the_factor_regular() -> None:
    weights, moments = layer_case(3, 6)
    moments[[1, 4]], moments[:, [1, 4]] = 0.0, 0.0
    problem = standard_form(weights, moments)
    assert not problem.weights[:, [1, 4]].any()
    inverted, ridge = inverse(problem.moments)
    torch.testing.assert_close(inverted @ problem.moments, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-8)
    assert ridge == 1e-12


def test_the_ridge_is_raised_until_the_factor_stands_and_not_for_ever() -> None:
    singular = torch.ones(3, 3)  # in float32 a ridge of 1e-4 is enough
    inverted, ridge = inverse(singular)
    torch.testing.assert_close(inverted @ (singular + ridge * torch.eye(3)), torch.eye(3), rtol=0, atol=0.02)
    _, ridge = inverse(torch.diag(torch.tensor([1.0, -0.05])))
    assert ridge == pytest.approx(0.1)
    with pytest.raises(BrainsurgeonError, match="not positive semi-definite"):
        inverse(-1e4 * torch.eye(2))


def test_shapes_that_do_not_belong_together_are_named() -> None:
    weights, moments = torch.ones(2, 3), torch.eye(3)
    check_layer(weights, moments, torch.ones(2), torch.ones(2, 3))
    with pytest.raises(BrainsurgeonError, match=r"need moments of shape \(3, 3\), got \(2, 2\)"):
        check_layer(weights, torch.eye(2), None, None)
    with pytest.raises(BrainsurgeonError, match=r"scales must have the shape \(2,\), got \(3,\)"):
        check_layer(weights, moments, torch.ones(3), None)
    with pytest.raises(BrainsurgeonError, match="linear of a layer hold NaN"):
        check_layer(weights, moments, None, torch.full((2, 3), torch.nan))


def test_dot_products_of_rows_are_a_column() -> None:
    left, right = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    assert dot(left, right).tolist() == [[3.0], [12.0]]
