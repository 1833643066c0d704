"""CBS-U on a low-rank block against the dense constrained minimiser."""

import numpy as np
import pytest
import reference
import torch
from fishers import assert_close, build, every_dtype, every_shape, ill_conditioned
from hypothesis import given
from hypothesis import strategies as st
from toys import Toy, indices_of, mask_of, toys

from brainsurgeon.engine.curvature import Fisher, compensation


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


def test_a_compensation_that_needs_more_damping_notes_it_and_stays_finite() -> None:
    fisher = Fisher(1e3 * torch.ones(6, 3, dtype=torch.float32), 1e-12)
    pruned = mask_of([0], 6)
    step = fisher.compensate(pruned, torch.where(pruned, -torch.ones(6, dtype=torch.float64), 0.0))
    assert any("damping raised" in note for note in fisher.notes)
    assert float(step.sum()) == pytest.approx(0, abs=1e-3)  # equal columns: the others take over what has gone


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
