"""The joint update against the constrained quadratic programme, and beside the other updates."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import Toy, dense, make_toy, mask_of, toys
from updates import apply, some_weights

from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.update import Independent, Joint, Keep


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
