"""The Gram curvature against the block-diagonal matrix that it stands for, built entry by entry."""

import numpy as np
import pytest
import reference
import torch
from cases import needs_gpu
from grams import assert_close, build, dense, kept_inverse_diagonal, vector
from hypothesis import given
from hypothesis import strategies as st
from toys import indices_of, mask_of

from brainsurgeon.engine.curvature import Gram
from brainsurgeon.errors import BrainsurgeonError

SHAPES = [(1, 4, 3), (2, 4, 3), (4, 4, 3), (3, 3, 1), (1, 1, 5)]
"""Groups, rows, inputs: a plain layer, two groups, depthwise, one input each, one output."""
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]} groups, {s[1]}x{s[2]}")


@every_shape
def test_every_answer_is_that_of_the_dense_matrix(shape: tuple[int, int, int]) -> None:
    curvature = build(*shape)
    H, n = dense(curvature), curvature.size
    x, steps = vector(n), np.random.default_rng(2).normal(size=(n, 3))
    assert n == len(H) == shape[1] * shape[2]
    assert_close(curvature.product(torch.from_numpy(x)), H @ x)
    assert_close(curvature.energy(torch.from_numpy(steps)), np.diag(steps.T @ H @ steps))
    assert_close(curvature.diagonal(), np.diag(H))
    assert_close(curvature.solve(torch.from_numpy(x)), np.linalg.solve(H, x))
    assert_close(curvature.inverse_diagonal(), np.diag(np.linalg.inv(H)))
    rows, columns = torch.arange(n).flip(0), torch.arange(0, n, 2)
    assert_close(curvature.submatrix(rows, columns), H[np.ix_(rows.numpy(), columns.numpy())])


def test_energies_take_steps_of_single_precision() -> None:
    """The steps of a model in float32 come as they are; the sum is in float64."""
    curvature = build(2, 4, 3)
    steps = torch.from_numpy(vector(curvature.size)).float().unsqueeze(1)
    d = steps.double().numpy()[:, 0]
    assert_close(curvature.energy(steps), np.array([d @ dense(curvature) @ d]))


@st.composite
def problems(draw: st.DrawFn) -> tuple[Gram, list[int]]:
    """A curvature of any grouping, and any set of pruned weights: from none of a row to all of it."""
    groups, each, inputs = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    curvature = build(groups, groups * each, inputs, draw(st.integers(0, 1000)))
    return curvature, sorted(draw(st.sets(st.integers(0, curvature.size - 1))))


@given(problems(), st.booleans())
def test_compensation_is_the_constrained_minimiser(problem: tuple[Gram, list[int]], first_order: bool) -> None:
    curvature, P = problem
    w, a = vector(curvature.size), vector(curvature.size, 3) if first_order else None
    pruned = mask_of(P, curvature.size)
    step = torch.where(pruned, -torch.from_numpy(w), 0.0)
    found = curvature.compensate(pruned, step, None if a is None else torch.from_numpy(a))
    assert_close(found, reference.obs_step(dense(curvature), w, P, a))
    np.testing.assert_array_equal(found.numpy()[P], -w[P])


@given(problems())
def test_moves_are_the_update_and_the_newton_step_of_each_slope(problem: tuple[Gram, list[int]]) -> None:
    """One factor for all of them gives what each would get from a system of its own."""
    curvature, P = problem
    H, n = dense(curvature), curvature.size
    w, slopes = vector(n), [vector(n, 3), vector(n, 4)]
    pruned = mask_of(P, n)
    step = torch.where(pruned, -torch.from_numpy(w), 0.0)
    repair, *newtons = curvature.moves(pruned, step, [torch.from_numpy(slope) for slope in slopes])
    assert_close(repair, reference.obs_step(H, w, P))
    for newton, slope in zip(newtons, slopes, strict=True):
        assert_close(newton, reference.obs_step(H, np.zeros(n), P, slope))
        assert not newton[pruned].any()
    assert len(curvature.moves(pruned, step, [])) == 1


@given(problems())
def test_the_inverse_diagonal_of_what_is_kept(problem: tuple[Gram, list[int]]) -> None:
    curvature, P = problem
    kept = ~mask_of(P, curvature.size)
    expected = kept_inverse_diagonal(dense(curvature), indices_of(kept))
    assert_close(curvature.inverse_diagonal(kept), expected)


def test_rows_that_keep_all_some_one_and_none_are_solved_together() -> None:
    """The padding of the shorter systems leaves no trace in any answer."""
    curvature = build(1, 4, 5)
    P = [5, 7, 10, 11, 12, 14, *range(15, 20)]
    H, w = dense(curvature), vector(20)
    pruned = mask_of(P, 20)
    assert (~pruned).view(4, 5).sum(1).tolist() == [5, 3, 1, 0]
    found = curvature.compensate(pruned, torch.where(pruned, -torch.from_numpy(w), 0.0))
    assert_close(found, reference.obs_step(H, w, P))
    assert_close(curvature.inverse_diagonal(~pruned), kept_inverse_diagonal(H, indices_of(~pruned)))


def test_inputs_that_are_always_zero_cost_their_damping_alone() -> None:
    """Such as the border of an image: nothing is divided by zero, and nothing leans on them."""
    curvature = build(1, 2, 4)
    curvature.moments[:, 1], curvature.moments[:, :, 1] = 0.0, 0.0
    H = dense(curvature)
    level = float(curvature.moments.diagonal(dim1=1, dim2=2).mean())
    assert curvature.diagonal()[1] == pytest.approx(0.1 * level * float(curvature.scales[0]))
    assert_close(curvature.inverse_diagonal(), np.diag(np.linalg.inv(H)))
    pruned, w = mask_of([0, 5], 8), torch.from_numpy(vector(8))
    found = curvature.compensate(pruned, torch.where(pruned, -w, 0.0))
    assert_close(found, reference.obs_step(H, w.numpy(), [0, 5]))
    assert found[1] == 0  # a dead input has nothing to give for the first weight of its row


def test_a_layer_whose_inputs_are_all_zero_still_has_a_curvature() -> None:
    curvature = Gram(torch.zeros(1, 3, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64), 0.1)
    assert_close(curvature.diagonal(), np.full(6, 0.1))
    pruned, step = mask_of([0], 6), -mask_of([0], 6).double()
    assert_close(curvature.compensate(pruned, step), step.numpy())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_inputs_that_are_not_finite_are_an_error(value: float) -> None:
    curvature = build(1, 2, 3)
    curvature.moments[0, 1, 1] = value
    message = "Gram matrix could not be factored .*: the inputs are not finite, or the damping is too small"
    with pytest.raises(BrainsurgeonError, match=message):
        curvature.solve(torch.ones(6, dtype=torch.float64))
    with pytest.raises(BrainsurgeonError, match=message):
        curvature.moves(mask_of([0], 6), torch.zeros(6, dtype=torch.float64), [])


def test_a_matrix_that_is_not_positive_definite_is_an_error() -> None:
    moments = torch.tensor([[[1.0, 2.0], [2.0, 1.0]]], dtype=torch.float64)
    with pytest.raises(BrainsurgeonError, match=r"relative damping of 0\.001"):
        Gram(moments, torch.ones(1, dtype=torch.float64), 1e-3).inverse_diagonal()


@pytest.mark.parametrize("damping", [0.0, -1.0, float("nan")])
def test_the_damping_must_be_positive(damping: float) -> None:
    with pytest.raises(BrainsurgeonError, match="damping must be positive"):
        build(1, 2, 3, damping=damping)


def test_rows_must_be_shared_by_the_groups() -> None:
    with pytest.raises(BrainsurgeonError, match="3 rows cannot be shared by 2 groups"):
        build(2, 3, 2)


@pytest.mark.gpu
@needs_gpu
@every_shape
def test_a_gpu_gives_what_the_cpu_gives(shape: tuple[int, int, int]) -> None:
    here = build(*shape)
    there = Gram(here.moments.cuda(), here.scales.cuda(), here.damping)
    w = torch.from_numpy(vector(here.size))
    pruned = torch.from_numpy(np.random.default_rng(5).random(here.size) < 0.5)
    for ask in (
        lambda g, x, p: g.product(x),
        lambda g, x, p: g.solve(x),
        lambda g, x, p: g.inverse_diagonal(),
        lambda g, x, p: g.inverse_diagonal(~p),
        lambda g, x, p: torch.cat(g.moves(p, torch.where(p, -x, 0.0), [x])),
    ):
        torch.testing.assert_close(ask(there, w.cuda(), pruned.cuda()).cpu(), ask(here, w, pruned))
