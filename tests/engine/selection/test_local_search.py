"""Algorithm 1 against its lines, and what every search must do."""

import itertools

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from searches import StartAt, swaps_of
from torch import Tensor
from toys import Toy, ToyJudge, arbitrary_loss, dense, indices_of, make_toy, mask_of, toys

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.selection import LocalSearch, WideSearch, local_search
from brainsurgeon.events import Event

parameters = st.fixed_dictionaries(
    {
        "min_improvement": st.sampled_from([0.0, 1e-4, 0.05, 0.5]),
        "max_failures": st.integers(1, 6),
        "window": st.integers(0, 5),
    }
)


@given(toys(14), st.data(), parameters)
def test_a_step_makes_the_swaps_of_the_algorithms_lines(toy: Toy, data: st.DataObject, settings: dict) -> None:
    """Lines 5 to 26, in the same order, for every ε, τ and ρ, with blocks and without."""
    P = tuple(sorted(data.draw(st.sets(st.integers(0, toy.size - 1)))))
    back, gone = reference.algorithm_1_step(
        dense(toy), toy.w, P, settings["min_improvement"], settings["max_failures"], settings["window"]
    )
    assert swaps_of(toy, P, LocalSearch(**settings)) == list(zip(back, gone, strict=True))


@given(st.integers(0, 10_000), parameters, st.integers(1, 8), st.integers(0, 3), st.booleans())
def test_the_whole_search_returns_what_the_algorithm_returns(
    seed: int, settings: dict, max_steps: int, patience: int, reorder: bool
) -> None:
    """With a loss that has nothing to do with the model, so that steps improve it or not at random."""
    toy, P, loss = make_toy(seed, 6, 16), tuple(range(0, 16, 2)), arbitrary_loss(seed)
    search = LocalSearch(StartAt(P), **settings, max_steps=max_steps, patience=patience, reorder=reorder)
    found = search(toy.problem(8, ToyJudge(loss)))
    expected = reference.algorithm_1(
        dense(toy),
        toy.w,
        P,
        lambda Q: loss(mask_of(Q, 16)),
        settings["min_improvement"],
        settings["max_failures"],
        settings["window"],
        max_steps,
        patience,
        reorder,
    )
    assert indices_of(found) == expected


def visits(toy: Toy, reorder: bool) -> list[list[int]]:
    """The masks that a search goes through, its own model being the loss."""
    visited = list[list[int]]()

    class Watching(ToyJudge):
        def is_better(self, new: Tensor, old: Tensor) -> bool:
            visited.append(indices_of(new))
            return super().is_better(new, old)

    start = StartAt(tuple(range(0, toy.size, 2)))
    LocalSearch(start, window=2, reorder=reorder)(toy.problem(toy.size // 2, Watching(toy.quadratic().cost)))
    return visited


def test_sorting_once_changes_what_follows_the_first_step_and_nothing_before() -> None:
    """Sorted anew, a search goes on where one with the order of its first step has nothing left to swap."""
    longer = 0
    for seed in range(20):
        toy = make_toy(seed, 6, 30)
        anew, once = visits(toy, True), visits(toy, False)
        assert anew[:1] == once[:1]
        longer += len(anew) > len(once)
    assert longer >= 10


@pytest.mark.parametrize("ahead", [1, 3, 5])
def test_gathering_the_curvature_in_parts_changes_no_swap(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan that goes on past what was gathered carries its swaps along."""
    search, longest = LocalSearch(max_failures=50, window=4, min_improvement=1e-6), 0
    for seed in range(10):
        toy, P = make_toy(seed, 8, 40), tuple(range(20))
        monkeypatch.setattr(local_search, "AHEAD", 128)
        whole = swaps_of(toy, P, search)
        monkeypatch.setattr(local_search, "AHEAD", ahead)
        assert swaps_of(toy, P, search) == whole
        longest = max(longest, len(whole))
    assert longest > ahead


@pytest.mark.parametrize("search", [LocalSearch(), WideSearch()], ids=["local", "wide"])
@given(toy=toys(14), data=st.data())
def test_every_swap_lowers_the_recomputed_objective(
    search: LocalSearch | WideSearch, toy: Toy, data: st.DataObject
) -> None:
    """Swap by swap, 2Q falls by at least ε; no weight moves twice in a step."""
    P = list(data.draw(st.sets(st.integers(0, toy.size - 1))))
    swaps, H = swaps_of(toy, tuple(P), search), dense(toy)
    assert len({i for i, _ in swaps}) == len({j for _, j in swaps}) == len(swaps)
    before = 2 * reference.selection_cost(H, toy.w, P)
    for i, j in swaps:
        P = [k for k in P if k != i] + [j]
        after = 2 * reference.selection_cost(H, toy.w, P)
        assert after <= before - search.min_improvement + 1e-9
        before = after


@pytest.mark.parametrize("search", [LocalSearch(), WideSearch()], ids=["local", "wide"])
def test_every_swap_lowers_the_objective_with_several_groups_in_a_block(
    search: LocalSearch | WideSearch,
) -> None:
    for seed in range(20):
        toy = make_toy(seed, 6, 40)
        pruned = mask_of([*range(10), *range(20, 30)], 40)
        problem = toy.problem(Budget((torch.arange(20), torch.arange(20, 40)), (10, 10)))
        quadratic = problem.quadratic
        before = 2 * quadratic.cost(pruned)
        for i, j in search.step(problem, pruned, quadratic.pressure(pruned)):
            pruned[i], pruned[j] = False, True
            after = 2 * quadratic.cost(pruned)
            assert after <= before - search.min_improvement + 1e-9
            before = after


@pytest.mark.parametrize("seed", range(10))
def test_an_order_of_the_first_step_is_kept_for_each_group_of_the_budget(seed: int) -> None:
    """Two groups in blocks of their own, where every step is taken for better, are two searches side by side."""

    class Content(ToyJudge):
        def is_better(self, new: Tensor, old: Tensor) -> bool:
            return True

    toy, count = make_toy(seed, 6, 40, blocks=[slice(0, 20), slice(20, 40)]), itertools.count()
    search = LocalSearch(StartAt((*range(10), *range(20, 30))), window=3, max_steps=4, reorder=False)
    budget = Budget((torch.arange(20), torch.arange(20, 40)), (10, 10))
    found, H = search(toy.problem(budget, Content(lambda mask: 0.0))), dense(toy)
    for block in toy.blocks:
        alone = reference.algorithm_1(
            H[block, block], toy.w[block], range(10), lambda _: next(count), 1e-4, 20, 3, 4, 5, reorder=False
        )
        assert indices_of(found[block]) == alone


@pytest.mark.parametrize("kind", [LocalSearch, WideSearch])
@given(seed=st.integers(0, 10_000))
def test_a_search_is_never_worse_than_its_start_by_the_judge(kind: type, seed: int) -> None:
    toy, loss, start = make_toy(seed, 6, 20), arbitrary_loss(seed), tuple(range(10))
    found = kind(StartAt(start))(toy.problem(10, ToyJudge(loss)))
    assert loss(found) <= loss(mask_of(start, 20))


@pytest.mark.parametrize("settings", [None, {"swaps_per_step": 2}], ids=["local", "wide"])
def test_the_cost_in_the_trace_is_the_cost_of_the_mask(settings: dict[str, int] | None) -> None:
    """The running cost, with and without a first-order term, is the recomputed one after every step."""
    toy = make_toy(1, 6, 24)
    for linear in (None, 0.1 * toy.G.mean(0)):
        quadratic, visited, events = toy.quadratic(linear=linear), [], list[Event]()

        class Watching(ToyJudge):
            def is_better(self, new: Tensor, old: Tensor) -> bool:
                visited.append(quadratic.cost(new))  # noqa: B023
                return True

        problem = Problem(
            quadratic.weights,
            toy.problem(12).budget,
            torch.Generator(),
            quadratic,
            Watching(quadratic.cost),
            events.append,
        )
        start = StartAt(tuple(range(12)))
        search = WideSearch(start, **settings) if settings else LocalSearch(start)
        search(problem)
        costs = [event.values["cost"] for event in events if event.stage == "search"]
        assert len(costs) > 1
        assert costs == pytest.approx(visited)
