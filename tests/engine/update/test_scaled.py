"""Updates taken in part, by a number or by the sample loss."""

import numpy as np
import pytest
import torch
from torch import Tensor
from toys import ToyJudge, make_toy, mask_of
from updates import apply

from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.update import Joint, Keep, Scaled
from brainsurgeon.engine.update.scaled import SCALES
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event


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
