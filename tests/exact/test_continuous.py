"""CBS-S with fractions of weights: both ways of solving it agree."""

from __future__ import annotations

import numpy as np
import pytest
from instances import lowest
from toys import make_toy, one_group

from brainsurgeon.exact.continuous import Continuous, least_eigenvalue


def test_the_bound_is_the_value_of_the_continuous_relaxation() -> None:
    """Both ways of solving it agree with one another, and no relaxed mask lies below the bound."""
    toy = make_toy(1, 8, 40)
    quadratic, budget = toy.quadratic(), one_group(40, 25)
    start = lowest(quadratic, budget)
    bounds = []
    for way in ("_by_splitting", "_by_gradients"):
        relaxation = Continuous(quadratic, budget)
        assert getattr(relaxation, way)(start.double(), quadratic.cost(start), float("inf")) == "relaxation solved"
        point = relaxation.point
        assert float(point.sum()) == pytest.approx(25, abs=1e-6)
        value = float(point @ (relaxation.image(point) / 2 + relaxation.slope))
        assert relaxation.lower <= value + 1e-12
        bounds.append(relaxation.lower)
    assert bounds[0] == pytest.approx(bounds[1], rel=2e-3)


def test_the_smallest_eigenvalue_is_that_of_the_matrix_or_the_damping() -> None:
    tall, wide = make_toy(0, 30, 6), make_toy(0, 4, 9)
    least = np.linalg.eigvalsh(tall.G.T @ tall.G / 30 + 0.1 * np.eye(6))[0]
    assert least_eigenvalue(tall.quadratic().curvatures[0]) == pytest.approx(least)
    assert least_eigenvalue(wide.quadratic().curvatures[0]) == 0.1
