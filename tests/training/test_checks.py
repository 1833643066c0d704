"""What a training loop that prunes is asked to do, and what it refuses."""

import pytest
import torch
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.training.checks import check_trained, checked_plan, checked_steps


def test_a_plan_holds_what_was_asked_for() -> None:
    plan = checked_plan(0.7, 5, 2.0, 0.5, True)
    assert (plan.end, plan.cuts, plan.power, plan.score_power, plan.returning) == (0.7, 5, 2.0, 0.5, True)
    assert checked_plan(1.0, 1, 1.0, 0.0, False).end == 1.0


@pytest.mark.parametrize(
    "asked", [(0.0, 5, 3.0, 0.5), (1.1, 5, 3.0, 0.5), (0.7, 0, 3.0, 0.5), (0.7, 5, 0.0, 0.5), (0.7, 5, 3.0, -0.1)]
)
def test_a_plan_that_cannot_be_followed_is_refused(asked: tuple[float, int, float, float]) -> None:
    with pytest.raises(BrainsurgeonError, match=f"got end={asked[0]}, cuts={asked[1]}, power={asked[2]}"):
        checked_plan(*asked, True)


@pytest.mark.parametrize("steps", [True, 3.0, "10", None])
def test_steps_are_a_whole_number(steps: object) -> None:
    with pytest.raises(BrainsurgeonError, match="whole number of optimizer steps"):
        checked_steps(steps, 0.7)


def test_two_steps_before_the_last_cut_are_the_fewest() -> None:
    assert checked_steps(4, 0.5) == 4
    with pytest.raises(BrainsurgeonError, match=r"3 steps are too few .*after 0\.5 of them, which must be 2"):
        checked_steps(3, 0.5)


def test_weights_that_were_replaced_diverged_or_lie_apart_are_refused() -> None:
    one, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    check_trained({"a": one, "b": other}, {"a": one, "b": other, "c": other}, 7)
    for now in ({"a": other}, {}):
        with pytest.raises(BrainsurgeonError, match="'a' is no longer the one that the optimizer trains"):
            check_trained({"a": one}, now, 7)
    broken = nn.Parameter(torch.tensor([1.0, torch.inf]))
    with pytest.raises(BrainsurgeonError, match="'b' holds NaN or infinite values at step 7"):
        check_trained({"a": one, "b": broken}, {"a": one, "b": broken}, 7)
