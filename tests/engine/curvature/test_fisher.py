"""The low-rank Fisher matrix against the dense one, entry by entry."""

import numpy as np
import pytest
import reference
import torch
from cases import needs_gpu
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys import Toy, indices_of, make_toy, mask_of, toys

from brainsurgeon.engine.curvature import Fisher, compensation, streaming
from brainsurgeon.engine.curvature.conjugate import conjugate_gradients
from brainsurgeon.engine.curvature.factor import factorise
from brainsurgeon.errors import BrainsurgeonError

SHAPES = [(4, 12), (12, 12), (30, 12)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=["K<n", "K=n", "K>n"])
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 1e-3}


def build(shape: tuple[int, int], dtype: torch.dtype) -> tuple[Toy, Fisher, np.ndarray]:
    """A toy whose gradients are what the storage holds, so that only arithmetic can differ."""
    toy = make_toy(7, *shape, damping=0.05)
    columns = torch.from_numpy(toy.G.T.copy()).to(dtype)
    toy.G = columns.double().numpy().T
    return toy, Fisher(columns, toy.damping), reference.fisher(toy.G, toy.damping)


def assert_close(found: Tensor, expected: np.ndarray, dtype: torch.dtype) -> None:
    assert found.dtype == torch.float64
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=TOLERANCE[dtype] * scale)


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


@every_shape
@every_dtype
@pytest.mark.parametrize("first_order", [False, True], ids=["", "linear"])
@pytest.mark.parametrize("P", [[], [4], [0, 1, 5, 9, 10], list(range(11)), list(range(12))], ids=len)
def test_compensation_is_the_constrained_minimiser(
    shape: tuple[int, int], dtype: torch.dtype, first_order: bool, P: list[int]
) -> None:
    """From no weight pruned to all of them, with fewer kept weights than gradients and with more."""
    toy, fisher, H = build(shape, dtype)
    linear = toy.G.mean(0) if first_order else None
    step = torch.where(mask_of(P, 12), -torch.from_numpy(toy.w), 0.0)
    found = fisher.compensate(mask_of(P, 12), step, None if linear is None else torch.from_numpy(linear))
    assert_close(found, reference.obs_step(H, toy.w, P, linear), dtype)
    assert not fisher.notes


@given(toys(), st.data())
def test_no_other_step_with_the_same_pruned_weights_costs_less(toy: Toy, data: st.DataObject) -> None:
    """The gradient of Q vanishes on the kept weights, which is what a minimum means."""
    P = data.draw(st.sets(st.integers(0, toy.size - 1)))
    pruned = mask_of(sorted(P), toy.size)
    step = toy.quadratic().compensate(pruned)
    H = reference.block_diagonal(reference.fisher(toy.G, toy.damping), toy.blocks)
    np.testing.assert_allclose((H @ step.numpy())[~pruned.numpy()], 0, atol=1e-7)
    np.testing.assert_array_equal(step.numpy()[indices_of(pruned)], -toy.w[indices_of(pruned)])


@every_shape
@every_dtype
@pytest.mark.parametrize("first_order", [False, True], ids=["", "linear"])
@pytest.mark.parametrize("copied", [0, 1 << 20], ids=["in place", "kept rows copied"])
def test_conjugate_gradients_stand_in_for_a_factor_that_is_too_large(
    shape: tuple[int, int], dtype: torch.dtype, first_order: bool, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compensation, "COPY_BYTES", copied)
    monkeypatch.setattr(compensation, "FACTOR_BYTES", 0)
    monkeypatch.setattr(compensation, "FACTOR_SHARE", 0.0)
    monkeypatch.setattr(compensation, "SKETCH_ROWS", 3)
    monkeypatch.setattr(Fisher, "factor", lambda *_: pytest.fail("a factor of the kept weights was made"))
    toy, fisher, H = build(shape, dtype)
    P = [0, 1, 5, 9]
    linear = toy.G.mean(0) if first_order else None
    step = torch.where(mask_of(P, 12), -torch.from_numpy(toy.w), 0.0)
    found = fisher.compensate(mask_of(P, 12), step, None if linear is None else torch.from_numpy(linear))
    expected = reference.obs_step(H, toy.w, P, linear)
    np.testing.assert_allclose(found.numpy(), expected, atol=3e-3 * np.abs(expected).max())
    assert not fisher.notes


def test_conjugate_gradients_say_so_when_they_do_not_arrive() -> None:
    matrix = torch.tensor([[0.0, 1.0], [-1.0, 0.1]], dtype=torch.float64)  # not symmetric: no convergence
    _, note = conjugate_gradients(lambda x: matrix @ x, torch.ones(2, dtype=torch.float64), lambda r: r, 1e-30)
    assert note is not None
    assert "relative residual" in note


def test_sums_in_pieces_are_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the pieces in which the stored gradients are read, the results are the same."""
    toy, fisher, H = build((5, 12), torch.bfloat16)
    monkeypatch.setattr(streaming, "PIECE", 7)
    monkeypatch.setattr(streaming.pieces, "__defaults__", (None, 7, None))
    assert len(list(streaming.pieces(fisher.columns))) == 12
    assert_close(fisher.product(torch.from_numpy(toy.w)), H @ toy.w, torch.bfloat16)
    assert_close(fisher.diagonal(), np.diag(H), torch.bfloat16)
    assert_close(fisher.inverse_diagonal(), np.diag(np.linalg.inv(H)), torch.bfloat16)


@every_dtype
def test_pieces_that_are_copied_share_one_buffer(dtype: torch.dtype) -> None:
    """The heap must not grow by a matrix while one is read."""
    columns, kept = torch.arange(40).reshape(10, 4).to(dtype), torch.tensor([9, 0, 3, 4, 8])
    seen = [(rows.data_ptr(), rows.double().clone()) for _, rows in streaming.pieces(columns, kept, 8)]
    assert len(seen) == 3
    assert len({place for place, _ in seen}) == 1
    assert torch.equal(torch.cat([rows for _, rows in seen]), columns[kept].double())


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


def test_a_matrix_that_cannot_be_factored_raises_the_damping_and_says_so() -> None:
    notes: list[str] = []
    factor = factorise(torch.diag(torch.tensor([-0.5, 1.0], dtype=torch.float64)), 0.1, 1.0, notes)
    assert factor.damping == pytest.approx(1.0)
    assert notes == ["damping raised from 0.1 to 1: the curvature was not positive definite"]
    solution = factor.solve(torch.ones(2, dtype=torch.float64))
    np.testing.assert_allclose(solution, [2.0, 0.5])


def test_a_raised_damping_is_the_damping_of_every_later_answer() -> None:
    """Equal gradients so large that λ drowns in their rounding: [H⁻¹]_ii is (1 − 1/6)/λ with the λ used."""
    fisher = Fisher(1e3 * torch.ones(6, 3, dtype=torch.float32), 1e-12)
    inverse_diagonal = fisher.inverse_diagonal()
    assert any("damping raised from 1e-12" in note for note in fisher.notes)
    assert fisher.damping > 1e-12
    np.testing.assert_allclose(inverse_diagonal * fisher.damping, 5 / 6, rtol=0.01)


def test_a_compensation_that_needs_more_damping_notes_it_and_stays_finite() -> None:
    fisher = Fisher(1e3 * torch.ones(6, 3, dtype=torch.float32), 1e-12)
    pruned = mask_of([0], 6)
    step = fisher.compensate(pruned, torch.where(pruned, -torch.ones(6, dtype=torch.float64), 0.0))
    assert any("damping raised" in note for note in fisher.notes)
    assert float(step.sum()) == pytest.approx(0, abs=1e-3)  # equal columns: the others take over what has gone


def test_a_matrix_beyond_repair_is_an_error() -> None:
    with pytest.raises(BrainsurgeonError, match="could not be factored"):
        factorise(torch.full((2, 2), torch.nan, dtype=torch.float64), 0.1, 1.0, [])


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
@pytest.mark.parametrize("P", [[], [4], [0, 1, 5, 9, 10], list(range(11)), list(range(12))], ids=len)
def test_moves_are_the_update_and_the_newton_step_of_each_slope(
    shape: tuple[int, int], dtype: torch.dtype, P: list[int]
) -> None:
    toy, fisher, H = build(shape, dtype)
    slopes = [toy.G.mean(0), np.random.default_rng(3).normal(size=12)]
    pruned = mask_of(P, 12)
    step = torch.where(pruned, -torch.from_numpy(toy.w), 0.0)
    repair, *newtons = fisher.moves(pruned, step, [torch.from_numpy(slope) for slope in slopes])
    assert_close(repair, reference.obs_step(H, toy.w, P), dtype)
    for newton, slope in zip(newtons, slopes, strict=True):
        assert_close(newton, reference.obs_step(H, np.zeros(12), P, slope), dtype)
        assert not newton[pruned].any()


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


def ill_conditioned(K: int, n: int, damping: float = 0.01) -> tuple[Fisher, np.ndarray, torch.Generator]:
    """Gradients that five directions dominate, in float32: their sums are rounded far more than the damping is."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(n, 5, generator=generator) @ torch.randn(5, K, generator=generator)
    columns += 0.1 * torch.randn(n, K, generator=generator)
    return Fisher(columns, damping), reference.fisher(columns.double().numpy().T, damping), generator


def test_a_solve_is_refined() -> None:
    """One application of the factor leaves a residual of more than a hundredth, a second step far less."""
    fisher, H, generator = ill_conditioned(300, 600)
    b = torch.randn(600, dtype=torch.float64, generator=generator)
    residual = H @ fisher.solve(b).numpy() - b.numpy()
    assert np.linalg.norm(residual) < 2e-3 * float(b.norm())


@pytest.mark.parametrize(("K", "n"), [(300, 600), (600, 300)], ids=["K<n", "K>n"])
def test_updates_and_newton_steps_are_refined(K: int, n: int) -> None:
    """What is left of the condition of the minimum, (Hd + a)_S = 0, beside its parts."""
    fisher, H, generator = ill_conditioned(K, n)
    pruned, (w, a) = torch.arange(n) % 3 == 0, torch.randn(2, n, dtype=torch.float64, generator=generator)
    step, kept = torch.where(pruned, -w, 0.0), (~pruned).numpy()
    update, newton = fisher.moves(pruned, step, [a])
    force = np.linalg.norm((H @ step.numpy())[kept])
    assert np.linalg.norm((H @ update.numpy())[kept]) < 7e-8 * force
    assert np.linalg.norm((H @ newton.numpy() + a.numpy())[kept]) < 1.2e-4 * float(a.norm())


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
