"""Updates against the constrained quadratic programme, and against one another where they must agree."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys import Toy, ToyJudge, dense, make_toy, mask_of, toys

from brainsurgeon.engine.problem import Problem, Update
from brainsurgeon.engine.update import Independent, Joint, Keep, Scaled
from brainsurgeon.engine.update.scaled import SCALES
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event


def apply(update: Update, toy: Toy, P: list[int], judge: ToyJudge | None = None) -> np.ndarray:
    return update(toy.problem(len(P), judge), mask_of(P, toy.size)).double().numpy()


some_weights = st.sets(st.integers(0, 11))


@given(toys(), some_weights)
def test_the_joint_update_is_the_solution_of_the_kkt_system(toy: Toy, chosen: set[int]) -> None:
    P = sorted(i for i in chosen if i < toy.size)
    np.testing.assert_allclose(apply(Joint(), toy, P), reference.obs_step(dense(toy), toy.w, P), atol=1e-8)


@given(toys(), some_weights)
def test_the_joint_update_costs_the_joint_cost_and_no_more_than_any_other(toy: Toy, chosen: set[int]) -> None:
    P, H = sorted(i for i in chosen if i < toy.size), dense(toy)
    cost = reference.step_cost(H, apply(Joint(), toy, P))
    assert cost == pytest.approx(reference.joint_cost(H, toy.w, P), abs=1e-9)
    for other in (Independent(), Keep()):
        assert cost <= reference.step_cost(H, apply(other, toy, P)) + 1e-9


@given(toys(), some_weights)
def test_the_independent_update_is_the_sum_of_single_ones(toy: Toy, chosen: set[int]) -> None:
    P = sorted(i for i in chosen if i < toy.size)
    expected = reference.independent_step(dense(toy), toy.w, P)
    np.testing.assert_allclose(apply(Independent(), toy, P), expected, rtol=1e-6, atol=1e-8)


@given(toys(), st.integers(0, 11))
def test_for_one_weight_joint_and_independent_are_classic_obs(toy: Toy, q: int) -> None:
    q %= toy.size
    classic = reference.obs_single(dense(toy), toy.w, q)
    np.testing.assert_allclose(apply(Joint(), toy, [q]), classic, atol=1e-8)
    np.testing.assert_allclose(apply(Independent(), toy, [q]), classic, atol=1e-8)


@given(st.integers(0, 1000), st.sets(st.integers(0, 6), min_size=3, max_size=3))
def test_no_set_and_update_costs_less_than_the_optimum_of_brute_force(seed: int, chosen: set[int]) -> None:
    """CBS in full: the joint cost of any set is at least the smallest of all, and the best set attains it."""
    toy = make_toy(seed, 5, 7)
    H = dense(toy)
    optimum, best = reference.best_joint(H, toy.w, 3)
    assert reference.step_cost(H, apply(Joint(), toy, sorted(chosen))) >= optimum - 1e-9
    assert reference.step_cost(H, apply(Joint(), toy, list(best))) == pytest.approx(optimum)


def test_joint_and_independent_differ_where_pruned_weights_interact() -> None:
    toy = make_toy(0)
    P = [0, 1, 2, 3]
    assert np.abs(apply(Joint(), toy, P) - apply(Independent(), toy, P)).max() > 0.01


def test_with_a_first_order_term_the_update_also_descends() -> None:
    toy = make_toy(4)
    linear = toy.G.mean(0)
    quadratic = toy.quadratic(linear=linear)
    problem = Problem(quadratic.weights, toy.problem(3).budget, torch.Generator(), quadratic)
    step = Joint()(problem, mask_of([1, 5, 6], toy.size)).numpy()
    np.testing.assert_allclose(step, reference.obs_step(dense(toy), toy.w, [1, 5, 6], linear), atol=1e-8)


def test_keep_changes_nothing_but_the_pruned_weights() -> None:
    toy = make_toy(1)
    expected = np.zeros(toy.size)
    expected[[2, 7]] = -toy.w[[2, 7]]
    np.testing.assert_array_equal(apply(Keep(), toy, [2, 7]), expected)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 2])
def test_a_scale_applies_to_the_kept_weights_alone(scale: float) -> None:
    toy, P = make_toy(2), [0, 4, 5]
    whole, scaled = apply(Joint(), toy, P), apply(Scaled(Joint(), scale), toy, P)
    kept = ~mask_of(P, toy.size).numpy()
    np.testing.assert_allclose(scaled[kept], scale * whole[kept])
    np.testing.assert_array_equal(scaled[P], -toy.w[P])


@pytest.mark.parametrize("wanted", [0.0, 0.5, 1.0])
def test_an_automatic_scale_is_the_one_of_smallest_loss_and_is_told(wanted: float) -> None:
    """The judge prefers weights near a part of the update; that part is found."""
    toy, P, events = make_toy(3), [1, 2, 8], list[Event]()
    pruned = mask_of(P, toy.size)
    whole = torch.from_numpy(apply(Joint(), toy, P))
    goal = torch.from_numpy(toy.w) + torch.where(pruned, whole, wanted * whole)

    def distance(values: Tensor) -> float:
        return float((values - goal).norm())

    plain = toy.problem(3, ToyJudge(lambda mask: 0.0, weights_loss=distance))
    problem = Problem(plain.weights, plain.budget, plain.generator, plain.quadratic, plain.judge, events.append)
    delta = Scaled(Joint(), "auto")(problem, pruned)
    torch.testing.assert_close(delta, goal - torch.from_numpy(toy.w))
    assert wanted in SCALES
    assert [(event.stage, event.values) for event in events] == [("scale", {"scale": wanted})]


def test_a_scaled_update_needs_curvature_where_its_inner_one_does() -> None:
    assert Scaled(Joint()).uses_curvature
    assert not Scaled(Keep()).uses_curvature


@pytest.mark.parametrize("scale", [-0.1, 11, "half", None, float("nan")])
def test_impossible_scales_are_refused(scale: object) -> None:
    with pytest.raises(BrainsurgeonError, match="update_scale must be"):
        Scaled(Joint(), scale)  # type: ignore[arg-type]
