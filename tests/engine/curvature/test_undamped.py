"""The Fisher matrix without damping, against the dense one."""

import numpy as np
import pytest
import reference
import torch
from toys import make_toy

from brainsurgeon.engine.curvature import Undamped
from brainsurgeon.errors import BrainsurgeonError


@pytest.mark.parametrize(("K", "N"), [(4, 9), (12, 7)])
def test_products_diagonal_and_entries_are_those_of_the_dense_matrix(K: int, N: int) -> None:
    toy = make_toy(3, K, N)
    H = reference.fisher(toy.G, 0.0)
    for matrix in (Undamped(torch.from_numpy(toy.G.T.copy())), Undamped(torch.from_numpy(toy.G.T.copy())).renewed()):
        x = torch.from_numpy(toy.w)
        i, j = torch.tensor([0, 3, 5]), torch.tensor([5, 1])
        np.testing.assert_allclose(matrix.product(x), H @ toy.w, atol=1e-12)
        np.testing.assert_allclose(matrix.energy(x.unsqueeze(1)), [toy.w @ H @ toy.w], atol=1e-12)
        np.testing.assert_allclose(matrix.diagonal(), np.diag(H), atol=1e-12)
        np.testing.assert_allclose(matrix.submatrix(i, j), H[np.ix_(i, j)], atol=1e-12)


def test_what_needs_an_inverse_is_refused() -> None:
    matrix, pruned = Undamped(torch.ones(3, 2)), torch.tensor([True, False, False])
    step = torch.zeros(3, dtype=torch.float64)
    for ask in (
        lambda: matrix.solve(step),
        matrix.inverse_diagonal,
        lambda: matrix.inverse_diagonal(~pruned),
        lambda: matrix.compensate(pruned, step),
        lambda: matrix.moves(pruned, step, []),
    ):
        with pytest.raises(BrainsurgeonError, match="without damping the Fisher matrix has no inverse"):
            ask()


def test_a_damping_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match=r"no damping, got 0\.1"):
        Undamped(torch.ones(3, 2), 0.1)
