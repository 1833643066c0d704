"""What a staged run remembers from stage to stage."""

import pytest
import torch

from brainsurgeon.pruning.staged.state import (
    FIRST_DAMPING,
    FIRST_LENGTH,
    LEAST_DAMPING,
    LEAST_LENGTH,
    MOST_DAMPING,
    MOST_LENGTH,
    State,
)


def test_what_a_state_has_learnt_stays_within_bounds() -> None:
    state = State.begin(torch.zeros(1), "gram")
    assert state.damped(1e-9).choice.damping == {"fisher": 1.0, "gram": LEAST_DAMPING}
    assert state.damped(1e12).choice.damping["gram"] == MOST_DAMPING
    assert state.stretched("loss", 1e-9).length("loss") == LEAST_LENGTH
    assert state.stretched("loss", 1e9).length("loss") == MOST_LENGTH
    assert state.stretched("loss", 2.0).length("distillation") == state.length("distillation")
    short = state.stretched("loss", 2.0).shortened(["loss", "distillation"], 0.25)
    assert (short.length("loss"), short.length("distillation")) == (pytest.approx(0.05), 0.025)
    assert short.choice.slope == ""


def test_what_was_favoured_is_known_after_steps_that_led_nowhere() -> None:
    state = State.begin(torch.zeros(1), "gram").stretched("distillation", 1.0).choosing(momentum=0.7)
    assert (state.choice.slope, state.choice.favoured) == ("distillation", "distillation")
    idle = state.shortened(["loss"], 0.25)
    assert (idle.choice.slope, idle.choice.favoured, idle.choice.momentum) == ("", "distillation", 0.0)


def test_each_kind_of_curvature_has_lengths_and_dampings_of_its_own() -> None:
    gram = State.begin(torch.zeros(1), "gram").stretched("loss", 4.0).damped(10.0)
    fisher = gram.choosing(kind="fisher")
    assert fisher.length("loss") == FIRST_LENGTH
    assert fisher.choice.damping["fisher"] == FIRST_DAMPING["fisher"]
    assert fisher.damped(10.0).choice.damping["gram"] == gram.choice.damping["gram"] == 0.1
