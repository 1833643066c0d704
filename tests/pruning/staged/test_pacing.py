"""What a staged run may take: examinations keep to their part of the gradients; short of time, steps are longer."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.pruning.staged.pacing import DAMPINGS, TRAINING_SHARE, Pacing
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.state import Choice, State

NOTHING = torch.zeros(0)


def state_at(number: int, favoured: str = "", **changes: object) -> State:
    choice = Choice("gram", favoured=favoured)
    return replace(State(number, 0.0, NOTHING, NOTHING.bool(), NOTHING, choice), **changes)


@given(
    stages=st.integers(1, 20),
    refits=st.integers(0, 20),
    trainings=st.integers(0, 3),
    most=st.integers(300, 100_000),
    curvatures=st.integers(1, 2),
    slopes=st.integers(1, 2),
    favoured=st.sampled_from(["", "loss", "distillation"]),
)
def test_the_examinations_take_their_part_of_the_gradients_and_no_more(
    stages: int, refits: int, trainings: int, most: int, curvatures: int, slopes: int, favoured: str
) -> None:
    schedule = Stages(stages, refits=refits, trainings=trainings)
    pacing = Pacing(schedule, most, 10**9, curvatures, slopes)
    taken, part = 0, int(most * (1 - TRAINING_SHARE)) if trainings else most
    for number in schedule.examinations_from(1):
        share = pacing.share(state_at(number, gradients=taken, favoured=favoured))
        assert share >= 1
        contest = pacing.is_contest(number)
        others = slopes - 1 if contest or favoured != "loss" else 0
        taken += share * (1 + others + (curvatures - 1) * contest)
    assert taken <= part
    assert taken > 0.5 * part  # what is rounded down stays small


def test_a_training_leaves_the_later_examinations_what_is_theirs() -> None:
    schedule = Stages(4, refits=2, trainings=2)
    pacing = Pacing(schedule, 1000, 10**9, 1, 1)
    assert pacing.owed(state_at(3, gradients=150, trained=50)) == 400 - 100
    assert pacing.owed(state_at(schedule.total, gradients=150, trained=50)) == 0  # only trainings are left


@pytest.mark.parametrize("trainings", [0, 2])
def test_without_a_limit_pruning_goes_on_evenly(trainings: int) -> None:
    schedule = Stages(4, refits=2, trainings=trainings)
    pacing = Pacing(schedule, 1000, 10, 1, 1)
    state, seen = state_at(0), []
    for number in range(1, schedule.total + 1):
        progress = pacing.progress(number, state, math.inf, [1e9])
        assert progress is not None
        state = replace(state, progress=progress)
        seen.append(progress)
    assert sorted(set(seen)) == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_where_time_is_short_steps_are_longer_and_refits_are_left_out() -> None:
    pacing = Pacing(Stages(4, refits=2, trainings=0), 1000, 10, 1, 1)
    halfway = state_at(2, progress=0.5)
    assert pacing.progress(3, halfway, 9.0, [1.0]) == pytest.approx(0.75)
    assert pacing.progress(3, halfway, 0.5, [1.0]) == 1.0  # no time for two: all that is left goes at once
    assert pacing.progress(3, halfway, -89.0, [1.0]) == 1.0  # pruning is always finished
    assert pacing.progress(5, state_at(4, progress=1.0), 2.0, [1.0]) == 1.0
    assert pacing.progress(5, state_at(4, progress=1.0), 0.5, [1.0]) is None


def test_dampings_are_tried_now_and_then() -> None:
    pacing = Pacing(Stages(6, refits=0, trainings=0), 1000, 10, 1, 1)
    assert [len(pacing.dampings(number)) for number in range(1, 7)] == [len(DAMPINGS), 1, 1, len(DAMPINGS), 1, 1]
