"""A curvature seen through another order of its weights: the same matrix with rows and columns exchanged."""

import numpy as np
import reference
import torch
from grams import assert_close, build, dense, kept_inverse_diagonal, vector
from hypothesis import given
from hypothesis import strategies as st
from toys import indices_of, mask_of

from brainsurgeon.engine.curvature import Reordered

OUTPUTS, INPUTS = 3, 4
SIZE = OUTPUTS * INPUTS


@given(st.permutations(range(SIZE)), st.sets(st.integers(0, SIZE - 1)))
def test_every_answer_is_that_of_the_reordered_matrix(order: list[int], chosen: set[int]) -> None:
    inner, P = build(1, OUTPUTS, INPUTS), sorted(chosen)
    curvature = Reordered(inner, torch.tensor(order))
    H = dense(inner)[np.ix_(order, order)]
    w, a, pruned = vector(SIZE), vector(SIZE, 3), mask_of(P, SIZE)
    x, slope = torch.from_numpy(w), torch.from_numpy(a)
    steps = np.random.default_rng(2).normal(size=(SIZE, 3))
    assert curvature.size == SIZE
    assert_close(curvature.product(x), H @ w)
    assert_close(curvature.energy(torch.from_numpy(steps)), np.diag(steps.T @ H @ steps))
    assert_close(curvature.diagonal(), np.diag(H))
    assert_close(curvature.submatrix(torch.tensor([5, 0]), torch.tensor([1, 5, 7])), H[np.ix_([5, 0], [1, 5, 7])])
    assert_close(curvature.solve(x), np.linalg.solve(H, w))
    assert_close(curvature.inverse_diagonal(), np.diag(np.linalg.inv(H)))
    assert_close(curvature.inverse_diagonal(~pruned), kept_inverse_diagonal(H, indices_of(~pruned)))
    step = torch.where(pruned, -x, 0.0)
    assert_close(curvature.compensate(pruned, step), reference.obs_step(H, w, P))
    assert_close(curvature.compensate(pruned, step, slope), reference.obs_step(H, w, P, a))
    repair, newton = curvature.moves(pruned, step, [slope])
    assert_close(repair, reference.obs_step(H, w, P))
    assert_close(newton, reference.obs_step(H, np.zeros(SIZE), P, a))


def test_a_transposed_matrix_is_read_column_by_column() -> None:
    """The order of a matrix with its inputs first: weight (i, o) lies at i·outputs + o, and is (o, i) inside."""
    inner = build(1, OUTPUTS, INPUTS)
    order = torch.arange(SIZE).view(OUTPUTS, INPUTS).T.reshape(-1)
    W = torch.from_numpy(vector(SIZE)).view(INPUTS, OUTPUTS)
    plain = inner.product(W.T.reshape(-1)).view(OUTPUTS, INPUTS)
    torch.testing.assert_close(Reordered(inner, order).product(W.reshape(-1)).view(INPUTS, OUTPUTS), plain.T)
