"""Every selection prunes exactly what the budget says, whatever the ties, groups and blocks."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import Toy, ToyJudge, arbitrary_loss, make_toy, toys

from brainsurgeon.engine.budget import Budget, make_budget
from brainsurgeon.engine.problem import Selection
from brainsurgeon.engine.selection import LocalSearch, Magnitude, Randomized, RecentredSearch, WideSearch, WoodFisher

SELECTIONS: dict[str, Callable[[], Selection]] = {
    "magnitude": Magnitude,
    "woodfisher": WoodFisher,
    "randomized": lambda: Randomized(num_draws=6),
    "randomized without screening": lambda: Randomized(num_draws=6, screen=False),
    "local search": lambda: LocalSearch(Randomized(num_draws=3), max_steps=5),
    "wide search": lambda: WideSearch(Randomized(num_draws=3), max_steps=5),
    "wide search in a small pool": lambda: WideSearch(Magnitude(), pool=2, swaps_per_step=1, max_steps=5),
    "recentred search": lambda: RecentredSearch(Randomized(num_draws=3), stiffness=1.0, max_steps=5),
    "recentred wide search": lambda: RecentredSearch(WideSearch(Magnitude()), max_steps=5),
}
every_selection = pytest.mark.parametrize("name", SELECTIONS)


def judge_of(toy: Toy) -> ToyJudge:
    quadratic = toy.quadratic()
    return ToyJudge(arbitrary_loss(0), lambda pruned: -quadratic.pressure(pruned))


def budget_of(toy: Toy, cut: int, counts: tuple[int, int]) -> Budget:
    groups = (torch.arange(cut), torch.arange(cut, toy.size))
    return Budget(groups, tuple(min(c, g.numel()) for c, g in zip(counts, groups, strict=True)))


@every_selection
@given(toy=toys(), cut=st.integers(1, 11), counts=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_groups_are_pruned_exactly_to_their_counts(name: str, toy: Toy, cut: int, counts: tuple[int, int]) -> None:
    """From nothing to everything, with blocks and groups that do not agree."""
    budget = budget_of(toy, min(cut, toy.size - 1), counts)
    problem = toy.problem(budget, judge_of(toy))
    pruned = SELECTIONS[name]()(problem)
    budget.check(pruned)


@every_selection
@pytest.mark.parametrize("rule", ["global", "uniform"])
def test_counts_are_exact_where_all_weights_are_alike(name: str, rule: str) -> None:
    toy = make_toy(0, 4, 30, blocks=[slice(0, 13), slice(13, 30)])
    toy.w[:] = 0.5
    toy.G[:] = 1.0
    layers = [("a", 0, 7), ("b", 7, 11), ("c", 18, 12)]
    budget = make_budget(rule, 0.37, layers, torch.device("cpu"))
    pruned = SELECTIONS[name]()(toy.problem(budget, judge_of(toy)))
    budget.check(pruned)
    assert int(pruned.sum()) == 12


@every_selection
def test_the_same_seed_gives_the_same_mask(name: str) -> None:
    toy = make_toy(3, 6, 40)

    def masks(seed: int) -> torch.Tensor:
        return SELECTIONS[name]()(toy.problem(20, judge_of(toy), seed))

    assert torch.equal(masks(5), masks(5))
