"""A factor that is repaired says so, and one beyond repair is an error."""

import numpy as np
import pytest
import torch

from brainsurgeon.engine.curvature.factor import factorise
from brainsurgeon.errors import BrainsurgeonError


def test_a_matrix_that_cannot_be_factored_raises_the_damping_and_says_so() -> None:
    notes: list[str] = []
    factor = factorise(torch.diag(torch.tensor([-0.5, 1.0], dtype=torch.float64)), 0.1, 1.0, notes)
    assert factor.damping == pytest.approx(1.0)
    assert notes == ["damping raised from 0.1 to 1: the curvature was not positive definite"]
    solution = factor.solve(torch.ones(2, dtype=torch.float64))
    np.testing.assert_allclose(solution, [2.0, 0.5])


def test_a_matrix_beyond_repair_is_an_error() -> None:
    with pytest.raises(BrainsurgeonError, match="could not be factored"):
        factorise(torch.full((2, 2), torch.nan, dtype=torch.float64), 0.1, 1.0, [])


def test_a_matrix_that_can_be_factored_keeps_its_damping_and_reads_its_lower_triangle_only() -> None:
    notes: list[str] = []
    lower = torch.tensor([[4.0, torch.nan], [2.0, 3.0]], dtype=torch.float64)
    factor = factorise(lower.clone(), 0.1, 10.0, notes)
    whole = np.array([[5.0, 2.0], [2.0, 4.0]])  # 10·0.1 on the diagonal
    assert factor.damping == 0.1
    assert not notes
    np.testing.assert_allclose(factor.solve(torch.ones(2, dtype=torch.float64)), np.linalg.solve(whole, np.ones(2)))
