"""Budgets with a pattern: brute force over all feasible masks, counts on the way, and masks that are brought there."""

import itertools

import pytest
import torch
from torch import Tensor

from brainsurgeon.engine.layer.patterns import parse_pattern
from brainsurgeon.engine.patterned import PatternedBudget, PatternLayer
from brainsurgeon.errors import BrainsurgeonError

LAYERS = (PatternLayer("a", 0, (2, 4)), PatternLayer("b", 8, (1, 4)))


def budget(pattern: str, counts: tuple[int, ...], together: bool = True) -> PatternedBudget:
    groups = (torch.arange(12),) if together else (torch.arange(8), torch.arange(8, 12))
    layers = (LAYERS,) if together else ((LAYERS[0],), (LAYERS[1],))
    return PatternedBudget(groups, counts, pattern=parse_pattern(pattern), layers=layers)


def scores(seed: int) -> Tensor:
    return torch.rand(12, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("pattern", "count"), [("2:4", 6), ("2:4", 4), ("1:4", 9), ("1x2", 6), ("1x4", 8)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_lowest_scores_are_those_of_the_best_feasible_mask(pattern: str, count: int, seed: int) -> None:
    asked, values = budget(pattern, (count,)), scores(seed)
    best = min(_feasible(asked, count), key=lambda mask: float(values[mask].sum()))
    assert torch.equal(asked.lowest(values), best)


def _feasible(asked: PatternedBudget, count: int) -> list[Tensor]:
    found = []
    for chosen in itertools.combinations(range(12), count):
        mask = torch.zeros(12, dtype=torch.bool)
        mask[list(chosen)] = True
        try:
            asked.check(mask)
        except BrainsurgeonError:
            continue
        found.append(mask)
    return found


def test_rows_lose_the_same_count_to_within_one() -> None:
    pruned = budget("row", (5, 2), together=False).lowest(scores(0))
    assert sorted(pruned[:8].view(2, 4).sum(1).tolist()) == [2, 3]
    assert int(pruned[8:].sum()) == 2


def test_a_feasible_mask_is_left_as_it_is_and_any_other_keeps_what_it_can() -> None:
    asked = budget("2:4", (6,))
    fine = asked.lowest(scores(3))
    assert torch.equal(asked.projected(fine, scores(4)), fine)
    rough = torch.tensor([1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0], dtype=torch.bool)
    found = asked.projected(rough, scores(4))
    asked.check(found)
    assert int((found[:4] & rough[:4]).sum()) == 2
    assert bool(found[4])
    assert torch.equal(found[8:], rough[8:])
    with pytest.raises(BrainsurgeonError, match="2:4 in 'a'"):
        asked.check(rough)


def test_on_the_way_whole_blocks_go_and_never_more_than_in_the_end() -> None:
    on_the_way = budget("1x4", (8,)).with_counts([5])
    assert on_the_way.counts == (8,)
    assert budget("1x4", (8,)).with_counts([3]).counts == (4,)
    assert budget("2:4", (6,)).with_counts([3]).counts == (3,)


def test_a_layer_that_is_stored_inputs_first_has_the_pattern_along_its_inputs() -> None:
    layer = PatternLayer("t", 0, (3, 4), transposed=True)
    asked = PatternedBudget((torch.arange(12),), (6,), pattern=parse_pattern("2:4"), layers=((layer,),))
    pruned = asked.lowest(scores(5))
    assert pruned.view(4, 3).sum(0).tolist() == [2, 2, 2]
