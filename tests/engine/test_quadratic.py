"""The quadratic model against its double sums, and what must not change it."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys import Toy, ToyJudge, dense, indices_of, make_toy, mask_of, one_group, toys

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Fisher, Gram, Reordered
from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.exact.polish import Polish
from brainsurgeon.pruning.methods import SELECTIONS, UPDATES


def inverse_diagonal(quadratic: QuadraticModel) -> Tensor:
    return torch.cat([curvature.inverse_diagonal() for curvature in quadratic.curvatures])


subsets = st.sets(st.integers(0, 11))


def within(P: set[int], toy: Toy) -> list[int]:
    return sorted(i for i in P if i < toy.size)


@given(toys(), subsets)
def test_the_cost_of_a_set_is_the_double_sum(toy: Toy, P: set[int]) -> None:
    chosen = within(P, toy)
    assert toy.quadratic().cost(mask_of(chosen, toy.size)) == pytest.approx(
        reference.selection_cost(dense(toy), toy.w, chosen), abs=1e-10
    )


@given(toys(), st.lists(subsets, min_size=1, max_size=4))
def test_the_costs_of_many_sets_are_their_costs(toy: Toy, sets: list[set[int]]) -> None:
    masks = [mask_of(within(P, toy), toy.size) for P in sets]
    quadratic = toy.quadratic()
    assert quadratic.costs(masks) == pytest.approx([quadratic.cost(mask) for mask in masks], abs=1e-10)


@given(toys(), subsets)
def test_impacts_are_alpha_inside_and_beta_outside(toy: Toy, P: set[int]) -> None:
    chosen, quadratic, H = within(P, toy), toy.quadratic(), dense(toy)
    pruned = mask_of(chosen, toy.size)
    found = quadratic.impact(quadratic.drift(quadratic.pressure(pruned)), pruned)
    expected = [
        reference.alpha(H, toy.w, chosen, k) if k in chosen else reference.beta(H, toy.w, chosen, k)
        for k in range(toy.size)
    ]
    assert found.tolist() == pytest.approx(expected, abs=1e-10)


@given(toys())
def test_gamma_is_the_pairwise_term_and_zero_across_blocks(toy: Toy) -> None:
    rows, columns = torch.arange(toy.size).flip(0), torch.arange(0, toy.size, 2)
    found = toy.quadratic().gamma(rows, columns)
    expected = [[reference.gamma(dense(toy), toy.w, int(i), int(j)) for j in columns] for i in rows]
    np.testing.assert_allclose(found, expected, atol=1e-10)


@given(toys(), subsets, st.data())
def test_the_change_of_a_swap_is_the_recomputed_objective(toy: Toy, P: set[int], data: st.DataObject) -> None:
    """β_j − γ_ij − α_i is 2Q after less 2Q before, within a block and across blocks."""
    chosen = within(P, toy)
    rest = [k for k in range(toy.size) if k not in chosen]
    if not chosen or not rest:
        return
    i, j = data.draw(st.sampled_from(chosen)), data.draw(st.sampled_from(rest))
    quadratic, pruned = toy.quadratic(), mask_of(chosen, toy.size)
    impact = quadratic.impact(quadratic.drift(quadratic.pressure(pruned)), pruned)
    change = impact[j] - quadratic.gamma(torch.tensor([i]), torch.tensor([j])).item() - impact[i]
    after = mask_of([k for k in chosen if k != i] + [j], toy.size)
    assert float(change) == pytest.approx(2 * (quadratic.cost(after) - quadratic.cost(pruned)), abs=1e-9)


@given(toys(), subsets)
def test_with_a_first_order_term_costs_and_impacts_carry_it(toy: Toy, P: set[int]) -> None:
    chosen, H, a = within(P, toy), dense(toy), toy.G.mean(0)
    quadratic, pruned = toy.quadratic(linear=a), mask_of(chosen, toy.size)
    removed = np.where(pruned.numpy(), toy.w, 0.0)
    assert quadratic.cost(pruned) == pytest.approx(reference.step_cost(H, -removed, a), abs=1e-10)
    impact = quadratic.impact(quadratic.drift(quadratic.pressure(pruned)), pruned)
    for k in range(toy.size):
        other = mask_of(sorted({*chosen} ^ {k}), toy.size)
        difference = 2 * (quadratic.cost(other) - quadratic.cost(pruned))
        assert float(impact[k]) == pytest.approx(-difference if k in chosen else difference, abs=1e-9)


@given(st.integers(0, 1000))
def test_one_block_equals_many_where_the_cross_blocks_vanish(seed: int) -> None:
    """With gradients that never touch two blocks at once, H is block-diagonal by itself."""
    toy = make_toy(seed, 6, 9)
    toy.G[:3, 4:] = 0
    toy.G[3:, :4] = 0
    parts = Toy(toy.G, toy.w, toy.damping, [slice(0, 4), slice(4, 9)])
    one, many, pruned = toy.quadratic(), parts.quadratic(), mask_of([0, 3, 5, 8], 9)
    assert one.cost(pruned) == pytest.approx(many.cost(pruned))
    for ask in (QuadraticModel.compensate, QuadraticModel.pressure):
        np.testing.assert_allclose(ask(one, pruned), ask(many, pruned), atol=1e-9)
    np.testing.assert_allclose(inverse_diagonal(one), inverse_diagonal(many), rtol=1e-9)
    np.testing.assert_allclose(one.solve(one.w), many.solve(many.w), rtol=1e-8)


@given(toys(), subsets, st.randoms(use_true_random=False))
def test_the_order_of_the_weights_does_not_matter(toy: Toy, P: set[int], random: object) -> None:
    order = list(range(toy.size))
    random.shuffle(order)  # type: ignore[attr-defined]
    one = Toy(toy.G, toy.w, toy.damping)
    other = Toy(toy.G[:, order], toy.w[order], toy.damping)
    pruned = mask_of(within(P, toy), toy.size)
    assert other.quadratic().cost(pruned[order]) == pytest.approx(one.quadratic().cost(pruned), abs=1e-10)
    step = one.quadratic().compensate(pruned)[order]
    np.testing.assert_allclose(other.quadratic().compensate(pruned[order]), step, atol=1e-8)
    expected = inverse_diagonal(one.quadratic())[order]
    np.testing.assert_allclose(inverse_diagonal(other.quadratic()), expected, rtol=1e-8)


@given(toys(), subsets, st.integers(0, 11))
def test_the_joint_cost_grows_with_the_set(toy: Toy, P: set[int], extra: int) -> None:
    """What makes the cost of a part a bound on the whole; and it is never above the cost without update."""
    chosen = within(P, toy)
    quadratic, pruned = toy.quadratic(), mask_of(chosen, toy.size)
    more = mask_of(within(P | {extra}, toy), toy.size)
    cost = quadratic.cost_of_step(quadratic.compensate(pruned))
    assert cost == pytest.approx(reference.joint_cost(dense(toy), toy.w, chosen), abs=1e-9)
    assert quadratic.cost_of_step(quadratic.compensate(more)) >= cost - 1e-9
    assert cost <= quadratic.cost(pruned) + 1e-9


def test_weights_without_gradient_cost_only_their_damping() -> None:
    toy = make_toy(0, 6, 8)
    toy.G[:, [2, 5]] = 0
    quadratic = toy.quadratic()
    free = mask_of([2, 5], 8)
    assert quadratic.cost(free) == pytest.approx(toy.damping * (toy.w[2] ** 2 + toy.w[5] ** 2) / 2)
    step = quadratic.compensate(free)
    assert indices_of(step.abs() > 1e-12) == [2, 5]


def test_every_index_is_in_the_block_that_holds_it() -> None:
    toy = make_toy(0, 3, 9, blocks=[slice(0, 1), slice(1, 6), slice(6, 9)])
    assert toy.quadratic().block_of(torch.arange(9)).tolist() == [0, 1, 1, 1, 1, 1, 2, 2, 2]


def test_notes_of_all_blocks_are_gathered() -> None:
    parts = [Fisher(torch.ones(2, 3), 0.1, [note]) for note in ("one", "two")]
    assert QuadraticModel(torch.ones(4), [slice(0, 2), slice(2, 4)], parts).notes == ["one", "two"]


@given(toys(), subsets)
def test_moves_are_the_update_and_the_newton_steps_of_every_block(toy: Toy, P: set[int]) -> None:
    chosen, H = within(P, toy), dense(toy)
    slopes = [toy.G.mean(0), np.random.default_rng(1).normal(size=toy.size)]
    pruned = mask_of(chosen, toy.size)
    repair, *newtons = toy.quadratic().moves(pruned, [torch.from_numpy(slope) for slope in slopes])
    np.testing.assert_allclose(repair, reference.obs_step(H, toy.w, chosen), atol=1e-8)
    np.testing.assert_allclose(repair, toy.quadratic().compensate(pruned), atol=1e-8)
    for newton, slope in zip(newtons, slopes, strict=True):
        expected = reference.obs_step(H, np.zeros(toy.size), chosen, slope)
        np.testing.assert_allclose(newton, expected, atol=1e-8 * max(1, np.abs(expected).max()))


@given(toys(), subsets)
def test_weights_that_are_zero_count_as_gone_in_the_inverse_diagonal(toy: Toy, P: set[int]) -> None:
    """A later stage's scores are those of the network that is left."""
    gone, H = within(P, toy), dense(toy)
    toy.w[gone] = 0.0
    kept = [k for k in range(toy.size) if k not in gone]
    expected = np.ones(toy.size)
    expected[kept] = np.diag(np.linalg.inv(H[np.ix_(kept, kept)]))
    np.testing.assert_allclose(toy.quadratic().inverse_diagonal, expected, rtol=1e-8)


# ---- The same over Gram curvatures: selections and updates do not know which they are given


def gram_model(seed: int = 0) -> QuadraticModel:
    """A plain layer of 4 by 5, a grouped one of 4 by 3 and one that lies transposed, 5 by 3."""
    rng = np.random.default_rng(seed)

    def gram(groups: int, rows: int, inputs: int) -> Gram:
        x = torch.from_numpy(rng.normal(size=(groups, inputs, inputs + 1)))
        return Gram(x @ x.mT, torch.from_numpy(rng.uniform(0.2, 2.0, rows)), 0.1)

    order = torch.arange(15).view(3, 5).T.reshape(-1)
    parts = [gram(1, 4, 5), gram(2, 4, 3), Reordered(gram(1, 3, 5), order)]
    weights = torch.from_numpy(rng.normal(size=47))
    return QuadraticModel(weights, [slice(0, 20), slice(20, 32), slice(32, 47)], parts)


def gram_problem(budget: Budget, seed: int = 0) -> Problem:
    quadratic = gram_model(seed)
    best = ToyJudge(
        quadratic.cost,
        lambda pruned: -quadratic.pressure(pruned),
        lambda values: quadratic.cost_of_step(values.double() - quadratic.w),
    )
    return Problem(quadratic.weights, budget, torch.Generator().manual_seed(seed), quadratic, best)


TWO_GROUPS = Budget((torch.arange(26), torch.arange(26, 47)), (19, 6))
BUDGETS = [one_group(47, 0), one_group(47, 23), one_group(47, 47), TWO_GROUPS]


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: str(budget.counts))
def test_every_selection_prunes_exactly_by_a_gram_curvature(name: str, budget: Budget) -> None:
    selection = Polish(rounds=5) if name == "polish" else SELECTIONS[name]()
    pruned = selection(gram_problem(budget))
    budget.check(pruned)
    assert torch.equal(pruned, selection(gram_problem(budget)))


@pytest.mark.parametrize("name", ["cbs-s", "wide", "algorithm1"])
def test_a_search_by_a_gram_curvature_finds_a_cheaper_set_than_it_started_from(name: str) -> None:
    problem = gram_problem(one_group(47, 23))
    found = problem.quadratic.cost(SELECTIONS[name]()(problem))
    assert found < 0.9 * problem.quadratic.cost(SELECTIONS["mp"]()(problem))


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: str(budget.counts))
def test_every_update_works_by_a_gram_curvature(name: str, budget: Budget) -> None:
    problem = gram_problem(budget)
    pruned = SELECTIONS["wf-s"]()(problem)
    step = UPDATES[name]()(problem, pruned)
    assert bool(torch.isfinite(step).all())
    best = problem.quadratic.compensate(pruned)
    if name == "cbs-u" and budget.total:  # the judge is the model itself: the whole step, or a finer scale, is best
        cost = problem.quadratic.cost_of_step(torch.where(pruned, -problem.quadratic.w, step))
        assert cost == pytest.approx(problem.quadratic.cost_of_step(best), rel=1e-6)


@given(st.integers(0, 1000), st.sets(st.integers(0, 46), min_size=1, max_size=46), st.data())
def test_the_change_of_a_swap_by_a_gram_curvature_is_the_recomputed_objective(
    seed: int, P: set[int], data: st.DataObject
) -> None:
    quadratic, chosen = gram_model(seed), sorted(P)
    i, j = data.draw(st.sampled_from(chosen)), data.draw(st.sampled_from(sorted(set(range(47)) - P)))
    pruned = mask_of(chosen, 47)
    impact = quadratic.impact(quadratic.drift(quadratic.pressure(pruned)), pruned)
    change = impact[j] - quadratic.gamma(torch.tensor([i]), torch.tensor([j])).item() - impact[i]
    after = mask_of([k for k in chosen if k != i] + [j], 47)
    assert float(change) == pytest.approx(2 * (quadratic.cost(after) - quadratic.cost(pruned)), abs=1e-8)


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("kind", ["fisher", "gram"])
def test_every_selection_takes_weights_that_are_gone_already(name: str, kind: str) -> None:
    """A later stage's problem: what is zero costs nothing to prune, and no number on the way is not finite."""
    selection = Polish(rounds=5) if name == "polish" else SELECTIONS[name]()
    zeros = torch.arange(47) % 4 == 0
    quadratic = gram_model() if kind == "gram" else make_toy(0, 20, 47).quadratic()
    quadratic = QuadraticModel(quadratic.weights.masked_fill(zeros, 0.0), quadratic.blocks, quadratic.curvatures)
    judge = ToyJudge(quadratic.cost, lambda pruned: -quadratic.pressure(pruned))
    budget = one_group(47, 30)
    problem = Problem(quadratic.weights, budget, torch.Generator().manual_seed(0), quadratic, judge)
    pruned = selection(problem)
    budget.check(pruned)
    if name in {"mp", "wf-s", "relaxed"}:
        assert bool(pruned[zeros].all())
