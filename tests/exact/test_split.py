"""The best diagonal split stays convex, and is tighter."""

from __future__ import annotations

import numpy as np
import pytest
from relaxations import N, make, relaxations

from brainsurgeon.exact.split import Root, best_split, inverse_on_plane
from brainsurgeon.exact.tangent import root_bound


@pytest.mark.parametrize("seed", range(5))
def test_the_best_split_is_convex_and_tighter(seed: int) -> None:
    instance = make(seed)
    M = instance.quadratic_form
    weak, strong, weak_joint, strong_joint = (relaxation for relaxation, _ in relaxations(instance))
    plane = np.linalg.svd(np.ones((1, N)))[2][1:].T  # a basis of Σy = 0
    rest = plane.T @ (M - np.diag(strong.shift)) @ plane  # type: ignore[attr-defined]
    assert np.linalg.eigvalsh(rest)[0] >= -1e-9 * np.diag(M).max()
    assert np.linalg.eigvalsh(instance.hessian - np.diag(strong_joint.shift))[0] > 0  # type: ignore[attr-defined]
    assert (strong_joint.shift > 0).all()  # type: ignore[attr-defined]
    assert root_bound(strong)[0] >= root_bound(weak)[0] - 1e-9
    assert root_bound(strong_joint)[0] > root_bound(weak_joint)[0]


def test_the_inverse_on_a_plane_solves_there_and_nowhere_else() -> None:
    """For b, x = T b is the minimiser of ½xᵀMx − bᵀx with Σx = 0."""
    rng = np.random.default_rng(0)
    G, b = rng.normal(size=(8, 5)), rng.normal(size=5)
    matrix = G.T @ G
    inverse = inverse_on_plane(matrix)
    x = inverse @ b
    assert x.sum() == pytest.approx(0, abs=1e-12)
    assert np.ptp(matrix @ x - b) == pytest.approx(0, abs=1e-10)  # the slope is along (1,…,1)
    np.testing.assert_allclose(inverse_on_plane(matrix + 7.0), inverse, atol=1e-10)


def test_a_split_without_time_is_still_a_split() -> None:
    """Where the deadline is over, the safe start is returned: positive, and what is left stays convex."""
    matrix = np.array([[4.0, 1.0], [1.0, 9.0]])

    def root(shift: np.ndarray, warm: np.ndarray | None) -> Root:
        return Root(float(shift.sum()), np.ones(2), np.zeros((2, 2)), np.zeros(0))

    early, late = (best_split(matrix, root, 1.0, deadline) for deadline in (-np.inf, np.inf))
    for shift in (early, late):
        assert (shift > 0).all()
        assert np.linalg.eigvalsh(matrix - np.diag(shift))[0] > 0
    assert late.sum() > early.sum()
    assert best_split(matrix, root, 0.01).sum() > late.sum()  # a barrier of less weight lets it come nearer
    assert late.sum() == pytest.approx(4 + 9 - 2, rel=0.1)  # the largest trace that is left over is tr|M_12|
