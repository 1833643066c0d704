"""Rows with kept inputs of their own against a dense system for each of them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from brainsurgeon.engine.curvature import kept_rows
from brainsurgeon.engine.curvature.kept_rows import KeptRows


def moments(groups: int, inputs: int, seed: int = 0) -> Tensor:
    x = np.random.default_rng(seed).normal(size=(groups, inputs, inputs + 2))
    return torch.from_numpy(x @ x.transpose(0, 2, 1) / x.shape[2] + 0.1 * np.eye(inputs))


def rows_of(matrix: Tensor, kept: Tensor, inverse: Callable[[], Tensor] | None = None) -> KeptRows:
    return KeptRows(matrix, inverse or (lambda: torch.linalg.inv(matrix)), torch.linalg.cholesky, kept)


def check(rows: KeptRows, tolerance: float = 1e-9) -> None:
    """Compare every answer with that of the row's own dense system."""
    count, inputs = rows.kept.shape
    forces = [torch.from_numpy(np.random.default_rng(seed).normal(size=(count, inputs))) for seed in (1, 2)]
    found, diagonal = rows.solve(forces), rows.inverse_diagonal()
    for row, kept in enumerate(rows.kept.numpy()):
        own = rows.matrix[row // (count // len(rows.matrix))].numpy()[np.ix_(kept, kept)]
        expected = np.ones(inputs)
        expected[kept] = np.diag(np.linalg.inv(own))
        np.testing.assert_allclose(diagonal[row], expected, rtol=tolerance)
        for force, solution in zip(forces, found, strict=True):
            wanted = np.zeros(inputs)
            wanted[kept] = np.linalg.solve(own, force[row].numpy()[kept])
            np.testing.assert_allclose(solution[row], wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 6), st.data())
def test_every_row_gets_the_answers_of_its_own_system(groups: int, each: int, inputs: int, data: st.DataObject) -> None:
    count = groups * each * inputs
    flags = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    check(rows_of(moments(groups, inputs), torch.tensor(flags).view(groups * each, inputs)))


def test_rows_that_lost_none_few_half_most_and_all_are_solved_together() -> None:
    kept = torch.tensor([[True] * n + [False] * (6 - n) for n in (6, 5, 4, 3, 1, 0)])
    check(rows_of(moments(1, 6), kept[:, [3, 0, 5, 1, 4, 2]]))


def test_no_factor_is_larger_than_half_of_a_row() -> None:
    sizes = []

    def factor(systems: Tensor) -> Tensor:
        sizes.append(systems.shape[1])
        return torch.linalg.cholesky(systems)

    matrix = moments(1, 10)
    kept = torch.tensor([[True] * n + [False] * (10 - n) for n in range(11)])
    rows = KeptRows(matrix, lambda: torch.linalg.inv(matrix), factor, kept)
    rows.solve([torch.ones(11, 10, dtype=torch.float64)])
    rows.inverse_diagonal()
    assert sizes == [5, 4, 5, 4]  # what is kept, then what is gone; once for each question


def test_the_whole_inverse_is_not_asked_for_where_every_row_has_lost_most() -> None:
    def refuse() -> Tensor:
        raise AssertionError("not needed")

    check(rows_of(moments(1, 4), torch.tensor([[True, False, False, True], [False] * 4]), refuse))


def test_inputs_that_are_nearly_the_same_lose_no_digits_that_matter() -> None:
    """B_ii is then a million times what remains of it once the twin is gone."""
    x = np.random.default_rng(0).normal(size=(8, 200))
    x[4:] = x[:4] + 1e-3 * x[4:]
    matrix = torch.from_numpy(x @ x.T / 200 + 1e-6 * np.eye(8)).unsqueeze(0)
    kept = torch.tensor([[True] * 5 + [False] * 3, [True] * 7 + [False], [True] * 4 + [False] * 4])
    assert float(torch.linalg.inv(matrix).diagonal(dim1=1, dim2=2).min()) > 1e5
    check(rows_of(matrix, kept), 1e-7)


def test_rounding_never_leaves_less_than_a_weight_alone_would_cost() -> None:
    """With a whole inverse that is too small the differences would be negative."""
    matrix = moments(1, 5)
    rows = rows_of(matrix, torch.tensor([[True, True, True, True, False]]), lambda: 1e-3 * torch.linalg.inv(matrix))
    np.testing.assert_array_equal(rows.inverse_diagonal()[0, :4], 1 / matrix[0].diagonal()[:4])


@pytest.mark.parametrize("limit", [1, 8 * 9, 8 * 9 * 4])
def test_however_few_rows_fit_into_memory_the_answers_are_the_same(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def factor(systems: Tensor) -> Tensor:
        batches.append(len(systems))
        return torch.linalg.cholesky(systems)

    matrix = moments(2, 5)
    kept = torch.from_numpy(np.random.default_rng(5).random((6, 5)) < 0.5)
    rows = KeptRows(matrix, lambda: torch.linalg.inv(matrix), factor, kept)
    monkeypatch.setitem(kept_rows.SYSTEM_BYTES, "cpu", limit)
    check(rows)
    few = len(batches)
    monkeypatch.setitem(kept_rows.SYSTEM_BYTES, "cpu", 1 << 20)
    check(rows)
    assert few > len(batches) - few == 4
