"""How many weights are gone after each stage: never fewer than before, and in the end exactly what was asked for."""

from itertools import pairwise

import pytest
import torch
from cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from toys import one_group

from brainsurgeon import prune
from brainsurgeon.engine.budget import Budget, exact_count, make_budget
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.staged.schedule import KINDS, Stages

LAYERS = [("a", 0, 7), ("b", 7, 11), ("c", 18, 82)]


def budget(rule: str | dict[str, float], sparsity: float) -> Budget:
    return make_budget(rule, sparsity, LAYERS, torch.device("cpu"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["global", "uniform", {"a": 0.3, "b": 0.99}], ids=str)
@given(sparsity=st.floats(0.01, 0.999), stages=st.integers(1, 20))
def test_counts_only_grow_in_every_group_and_end_at_the_budget(
    kind: str, rule: str | dict[str, float], sparsity: float, stages: int
) -> None:
    schedule = Stages(stages, kind)
    try:
        final = budget(rule, sparsity)
    except BrainsurgeonError:
        return  # the patterns ask for more than the whole may lose
    steps = [schedule.budget_at(number / stages, final) for number in range(stages + 1)]
    assert steps[0].counts == (0,) * len(final.counts)
    assert steps[-1].counts == final.counts
    assert steps[-1].total == exact_count(sparsity, 100)
    for before, after in pairwise(steps):
        assert all(0 <= one <= other for one, other in zip(before.counts, after.counts, strict=True))
        assert all(one is other for one, other in zip(after.groups, final.groups, strict=True))


def test_each_kind_falls_in_its_own_way() -> None:
    """At half way to 0.96 of 10,000 weights: kept are √0.04, 1 − 0.96·(1 − ½³) and 1 − 0.96/2."""
    final = one_group(10_000, 9_600)
    halfway = {kind: Stages(2, kind).budget_at(0.5, final).total for kind in KINDS}
    assert halfway == {"exponential": 8_000, "polynomial": 8_400, "linear": 4_800}


def test_an_exponential_schedule_removes_the_same_share_of_what_is_left_at_every_stage() -> None:
    final = one_group(10**6, 9 * 10**5)
    kept = [10**6 - Stages(5).budget_at(k / 5, final).total for k in range(6)]
    assert [b / a for a, b in pairwise(kept)] == pytest.approx([0.1**0.2] * 5, rel=1e-4)


def test_a_group_that_loses_nothing_loses_nothing_on_the_way() -> None:
    final = Budget((torch.arange(5), torch.arange(5, 10)), (0, 5))
    assert [Stages(3).budget_at(k / 3, final).counts[0] for k in range(4)] == [0] * 4


def test_refits_and_trainings_come_on_top_of_the_stages() -> None:
    assert Stages(4, refits=3, trainings=2).total == 9
    assert Stages(4, refits=3, trainings=2).examinations == 7
    assert Stages(4, refits=0, trainings=0).total == 4


@pytest.mark.parametrize(
    ("schedule", "trainings"),
    [
        (Stages(4, refits=3, trainings=0), []),
        (Stages(4, refits=3, trainings=1), [8]),
        (Stages(4, refits=3, trainings=2), [3, 9]),
        (Stages(5, refits=0, trainings=3), [3, 7, 8]),
        (Stages(1, refits=2, trainings=2), [2, 5]),
    ],
)
def test_of_several_trainings_the_first_is_in_the_middle_of_the_stages(schedule: Stages, trainings: list[int]) -> None:
    numbers = range(1, schedule.total + 1)
    assert [number for number in numbers if schedule.is_training(number)] == trainings
    for number in numbers:
        assert schedule.trainings_from(number) == sum(training >= number for training in trainings)
        assert schedule.examinations_before(number) == number - 1 - sum(training < number for training in trainings)
        assert len(schedule.examinations_from(number)) == schedule.examinations - schedule.examinations_before(number)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": 0}, "at least 1 stage"),
        ({"stages": -2}, "at least 1 stage"),
        ({"refits": -1}, "no negative number"),
        ({"stages": 2.5}, "whole numbers"),
        ({"stages": True}, "whole numbers"),
        ({"refits": "3"}, "whole numbers"),
        ({"kind": "cubic"}, "one of exponential, polynomial, linear, got 'cubic'"),
        ({"kind": None}, "one of exponential, polynomial, linear, got None"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BrainsurgeonError, match=message):
        Stages(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["3", 2.0, (3, 3), {"stages": 3}, True, 0, -1])
def test_prune_takes_a_number_of_stages_or_a_schedule_and_nothing_else(schedule: object) -> None:
    case = CASES["linear"]
    with pytest.raises(BrainsurgeonError, match="stage"):
        prune(case.model(), case.data(), 0.5, "cbs", schedule=schedule)  # type: ignore[arg-type]
