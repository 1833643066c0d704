"""The oracle agrees with itself: where the paper gives two ways to one number, both give it."""

import numpy as np
import pytest
import reference
from toys import make_toy

SIZES = [(3, 8), (8, 8), (20, 8)]


@pytest.mark.parametrize(("K", "N"), SIZES)
def test_recursion_closed_form_and_dense_inverse_agree(K: int, N: int) -> None:
    toy = make_toy(0, K, N)
    dense = np.linalg.inv(reference.fisher(toy.G, toy.damping))
    np.testing.assert_allclose(reference.woodfisher_recursion(toy.G, toy.damping), dense, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(reference.woodbury(toy.G, toy.damping), dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("P", [[2], [0, 5], [1, 2, 3, 6], list(range(8))])
def test_the_joint_cost_is_the_cost_of_the_constrained_minimiser(P: list[int]) -> None:
    toy = make_toy(1, 5, 8)
    H = reference.fisher(toy.G, toy.damping)
    step = reference.obs_step(H, toy.w, P)
    np.testing.assert_allclose(step[P], -toy.w[P], rtol=1e-10)
    assert reference.step_cost(H, step) == pytest.approx(reference.joint_cost(H, toy.w, P))


def test_several_weights_reduce_to_classic_obs_for_one() -> None:
    toy = make_toy(2, 5, 8)
    H = reference.fisher(toy.G, toy.damping)
    for q in range(8):
        np.testing.assert_allclose(reference.obs_step(H, toy.w, [q]), reference.obs_single(H, toy.w, q), rtol=1e-9)
        assert reference.joint_cost(H, toy.w, [q]) == pytest.approx(reference.woodfisher_scores(H, toy.w)[q])


def test_alpha_beta_and_gamma_are_differences_of_twice_the_objective() -> None:
    toy = make_toy(3, 5, 7)
    H, w, P = reference.fisher(toy.G, toy.damping), toy.w, [1, 4, 6]

    def twice(Q: list[int]) -> float:
        return 2 * reference.selection_cost(H, w, Q)

    assert reference.alpha(H, w, P, 4) == pytest.approx(twice(P) - twice([1, 6]))
    assert reference.beta(H, w, P, 2) == pytest.approx(twice([*P, 2]) - twice(P))
    swap = reference.beta(H, w, P, 2) - reference.gamma(H, w, 4, 2) - reference.alpha(H, w, P, 4)
    assert swap == pytest.approx(twice([1, 6, 2]) - twice(P))


def test_every_swap_of_a_step_lowers_the_objective_by_the_least_improvement() -> None:
    """The sums over I and J in line 22 are exact: swap after swap, 2Q falls by at least ε."""
    toy = make_toy(4, 6, 30)
    H = reference.fisher(toy.G, toy.damping)
    P = list(range(15))
    I, J = reference.algorithm_1_step(H, toy.w, P, eps=1e-3, tau=5, rho=4)  # noqa: E741
    assert len(I) > 1
    before = 2 * reference.selection_cost(H, toy.w, P)
    for i, j in zip(I, J, strict=True):
        P = [k for k in P if k != i] + [j]
        after = 2 * reference.selection_cost(H, toy.w, P)
        assert after <= before - 1e-3 + 1e-12
        before = after
