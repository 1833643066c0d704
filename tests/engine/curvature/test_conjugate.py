"""Conjugate gradients against dense solves."""

import pytest
import torch
from torch import Tensor

from brainsurgeon.engine.curvature.conjugate import conjugate_gradients


def test_conjugate_gradients_say_so_when_they_do_not_arrive() -> None:
    matrix = torch.tensor([[0.0, 1.0], [-1.0, 0.1]], dtype=torch.float64)  # not symmetric: no convergence
    _, note = conjugate_gradients(lambda x: matrix @ x, torch.ones(2, dtype=torch.float64), lambda r: r, 1e-30)
    assert note is not None
    assert "relative residual" in note


def positive_definite(size: int, generator: torch.Generator) -> Tensor:
    """A dense matrix whose eigenvalues lie between 1 and 1000."""
    orthogonal, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return orthogonal * torch.logspace(0, 3, size, dtype=torch.float64) @ orthogonal.T


def test_the_solution_is_that_of_a_dense_solve(generator: torch.Generator) -> None:
    matrix, b = positive_definite(12, generator), torch.randn(12, generator=generator, dtype=torch.float64)
    x, note = conjugate_gradients(matrix.mv, b, lambda r: r / matrix.diagonal(), 1e-10)
    assert note is None
    torch.testing.assert_close(x, torch.linalg.solve(matrix, b), rtol=1e-7, atol=0)


def test_an_exact_preconditioner_needs_one_product_and_an_exact_start_no_more(generator: torch.Generator) -> None:
    """The start is looked at once, and is not changed in place."""
    matrix, b = positive_definite(12, generator), torch.randn(12, generator=generator, dtype=torch.float64)
    exact, asked = torch.linalg.solve(matrix, b), list[Tensor]()

    def product(x: Tensor) -> Tensor:
        asked.append(x)
        return matrix @ x

    conjugate_gradients(product, b, lambda r: torch.linalg.solve(matrix, r))
    assert len(asked) == 1
    start = exact.clone()
    x, note = conjugate_gradients(product, b, lambda r: pytest.fail("nothing is left to solve"), start=start)
    assert len(asked) == 2
    assert note is None
    assert x is not start
    torch.testing.assert_close(x, exact)


def test_no_force_is_no_step_even_from_a_start() -> None:
    """The goal is relative to b: with b = 0 it is the solution itself, not the start, that is returned."""
    x, note = conjugate_gradients(lambda x: 2 * x, torch.zeros(3), lambda r: r, start=torch.ones(3))
    assert note is None
    assert torch.equal(x, torch.zeros(3))
