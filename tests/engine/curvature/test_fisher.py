"""The low-rank Fisher matrix against the dense one, entry by entry."""

import numpy as np
import pytest
import reference
import torch
from cases import needs_gpu
from fishers import assert_close, build, every_dtype, every_shape, ill_conditioned
from toys import indices_of, make_toy, mask_of

from brainsurgeon.engine.curvature import Fisher, compensation
from brainsurgeon.errors import BrainsurgeonError


@every_shape
@every_dtype
def test_products_are_those_of_the_dense_matrix(shape: tuple[int, int], dtype: torch.dtype) -> None:
    toy, fisher, H = build(shape, dtype)
    assert_close(fisher.product(torch.from_numpy(toy.w)), H @ toy.w, dtype)


@every_dtype
def test_a_vector_with_few_entries_has_the_same_product(dtype: torch.dtype) -> None:
    """The short cut that reads only a few rows changes nothing."""
    _, fisher, H = build((4, 12), dtype)
    x = np.zeros(12)
    x[5] = 2.0
    assert_close(fisher.product(torch.from_numpy(x)), H @ x, dtype)
    assert_close(fisher.product(torch.zeros(12, dtype=torch.float64)), np.zeros(12), dtype)


@every_shape
@every_dtype
def test_energies_of_many_steps_at_once(shape: tuple[int, int], dtype: torch.dtype) -> None:
    _, fisher, H = build(shape, dtype)
    D = np.random.default_rng(0).normal(size=(12, 3))
    assert_close(fisher.energy(torch.from_numpy(D)), np.diag(D.T @ H @ D), dtype)


@every_shape
@every_dtype
def test_the_diagonal_and_submatrices_are_entries_of_the_dense_matrix(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    _, fisher, H = build(shape, dtype)
    rows, columns = torch.tensor([3, 0, 7]), torch.tensor([7, 2, 3, 11])
    assert_close(fisher.diagonal(), np.diag(H), dtype)
    assert_close(fisher.submatrix(rows, columns), H[np.ix_(rows.numpy(), columns.numpy())], dtype)


@every_shape
@every_dtype
def test_solves_and_the_inverse_diagonal(shape: tuple[int, int], dtype: torch.dtype) -> None:
    toy, fisher, H = build(shape, dtype)
    assert_close(fisher.solve(torch.from_numpy(toy.w)), np.linalg.solve(H, toy.w), dtype)
    assert_close(fisher.inverse_diagonal(), np.diag(reference.woodfisher_recursion(toy.G, toy.damping)), dtype)


@every_dtype
def test_energies_of_steps_that_agree_in_most_places(dtype: torch.dtype) -> None:
    _, fisher, H = build((4, 12), dtype)
    D = np.repeat(np.random.default_rng(0).normal(size=(12, 1)), 5, 1)
    D[3, 1:], D[7, 4] = [1.0, 2.0, 3.0, 4.0], 0.0
    assert_close(fisher.energy(torch.from_numpy(D)), np.diag(D.T @ H @ D), dtype)


@every_dtype
@pytest.mark.parametrize("other", [[0, 3, 4], [1, 2], [0, 1, 2, 3, 5], list(range(30))], ids=str)
def test_the_update_of_a_mask_like_the_last_is_that_of_a_fresh_start(dtype: torch.dtype, other: list[int]) -> None:
    """Where the K×K matrix of the last mask is kept, the next comes from it by what differs, or is made anew."""
    toy = make_toy(5, 3, 60, damping=0.05)
    columns = torch.from_numpy(toy.G.T.copy()).to(dtype)
    fisher, w = Fisher(columns, toy.damping), torch.from_numpy(toy.w)
    for P in ([0, 1, 2], other, [0, 1, 2]):
        pruned = mask_of(P, 60)
        step = torch.where(pruned, -w, 0.0)
        found, fresh = fisher.compensate(pruned, step), Fisher(columns, toy.damping).compensate(pruned, step)
        np.testing.assert_allclose(found, fresh, rtol=0, atol=1e-5)
    assert fisher._outer is not None


def test_a_raised_damping_is_the_damping_of_every_later_answer() -> None:
    """Equal gradients so large that λ drowns in their rounding: [H⁻¹]_ii is (1 − 1/6)/λ with the λ used."""
    fisher = Fisher(1e3 * torch.ones(6, 3, dtype=torch.float32), 1e-12)
    inverse_diagonal = fisher.inverse_diagonal()
    assert any("damping raised from 1e-12" in note for note in fisher.notes)
    assert fisher.damping > 1e-12
    np.testing.assert_allclose(inverse_diagonal * fisher.damping, 5 / 6, rtol=0.01)


@pytest.mark.parametrize("damping", [0.0, -1.0, float("nan")])
def test_the_damping_must_be_positive(damping: float) -> None:
    with pytest.raises(BrainsurgeonError, match="damping must be positive"):
        Fisher(torch.ones(2, 2), damping)


@pytest.mark.gpu
@needs_gpu
@every_shape
def test_a_gpu_gives_what_the_cpu_gives(shape: tuple[int, int]) -> None:
    toy, fisher, _ = build(shape, torch.float64)
    there = Fisher(fisher.columns.cuda(), toy.damping)
    w, pruned = torch.from_numpy(toy.w), mask_of([0, 3, 4], 12)
    for ask in (
        lambda f, x, p: f.product(x),
        lambda f, x, p: f.solve(x),
        lambda f, x, p: f.inverse_diagonal(),
        lambda f, x, p: f.compensate(p, torch.where(p, -x, 0.0)),
    ):
        here, away = ask(fisher, w, pruned), ask(there, w.cuda(), pruned.cuda())
        np.testing.assert_allclose(away.cpu(), here, rtol=1e-9, atol=1e-9)


@every_shape
@every_dtype
@pytest.mark.parametrize("gone", [[], [4], [0, 1, 5, 9, 10], list(range(11)), list(range(12))], ids=len)
def test_the_inverse_diagonal_of_what_is_kept(shape: tuple[int, int], dtype: torch.dtype, gone: list[int]) -> None:
    """[H_SS⁻¹]_ii, as if the others had never been there; 1 in their place."""
    _, fisher, H = build(shape, dtype)
    kept = ~mask_of(gone, 12)
    S = indices_of(kept)
    expected = np.ones(12)
    expected[S] = np.diag(np.linalg.inv(H[np.ix_(S, S)]))
    assert_close(fisher.inverse_diagonal(kept), expected, dtype)
    assert_close(fisher.inverse_diagonal(), np.diag(np.linalg.inv(H)), dtype)  # and the whole is as before


def test_a_solve_is_refined() -> None:
    """One application of the factor leaves a residual of more than a hundredth, a second step far less."""
    fisher, H, generator = ill_conditioned(300, 600)
    b = torch.randn(600, dtype=torch.float64, generator=generator)
    residual = H @ fisher.solve(b).numpy() - b.numpy()
    assert np.linalg.norm(residual) < 2e-3 * float(b.norm())


@pytest.mark.parametrize("iterative", [False, True], ids=["factored", "by conjugate gradients"])
@pytest.mark.parametrize("shape", [(300, 60), (60, 300)], ids=["wide", "tall"])
@pytest.mark.parametrize("damping", [1e-5, 1e-8])
def test_a_damping_that_float32_would_drown_is_kept(
    damping: float, shape: tuple[int, int], iterative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strong directions, stored in float32: sums in float32 would be wrong by more than λ."""
    if iterative:
        monkeypatch.setattr(compensation, "FACTOR_BYTES", 0)
        monkeypatch.setattr(compensation, "FACTOR_SHARE", 0.0)
    size, rows = shape
    generator = torch.Generator().manual_seed(0)
    strong = torch.randn(size, 5, generator=generator) @ torch.randn(5, rows, generator=generator)
    columns = 5 * strong + 0.05 * torch.randn(size, rows, generator=generator)
    w = torch.randn(size, generator=generator, dtype=torch.float64)
    pruned = torch.rand(size, generator=generator) < 0.5
    fisher, twin = Fisher(columns, damping), columns.double() @ columns.double().T / rows
    twin.diagonal().add_(damping)
    step = torch.where(pruned, -w, 0.0)
    exact = step.clone()
    exact[~pruned] = torch.linalg.solve(twin[~pruned][:, ~pruned], -twin[~pruned][:, pruned] @ step[pruned])
    found = fisher.compensate(pruned, step)
    cost, best = found @ twin @ found, exact @ twin @ exact
    assert float(cost / best) < (1.01 if iterative else 1.0001)
    assert any("small beside the curvature" in note for note in fisher.notes)
    torch.testing.assert_close(fisher.inverse_diagonal(), torch.linalg.inv(twin).diagonal(), rtol=1e-3, atol=0)


def test_an_ordinary_damping_leaves_the_products_as_they_are_stored() -> None:
    fisher = Fisher(torch.randn(30, 8, generator=torch.Generator().manual_seed(0)), 1e-3)
    fisher.compensate(torch.arange(30) < 9, torch.where(torch.arange(30) < 9, 1.0, 0.0).double())
    assert fisher.precision is None
    assert not fisher.notes
