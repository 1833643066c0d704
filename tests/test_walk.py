"""Walks: the line of steps against one written out, budgets, and what a staged run makes of them."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from brainsurgeon.loss import BatchLoss
from brainsurgeon.schedule import Stages
from brainsurgeon.walk import AWAY, FLOOR, MOMENTUM, STRIDES, take_steps
from brainsurgeon.weights import find_weights
from cases import seeded
from test_staged_run import Notebook, StoppedError, run, same, trained

WALKS = Stages(2, refits=1, walks=3)


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


def problem() -> tuple[BatchLoss, Any, Tensor, Tensor, Tensor, list[Any]]:
    model = seeded(lambda: nn.Linear(4, 3).double(), 0)
    weights = find_weights(model)
    values = weights.flatten(model)
    pruned = torch.arange(12) % 3 == 0
    squares = seeded(lambda: torch.rand(12, dtype=torch.float64), 2)
    x, y = seeded(lambda: torch.randn(30, 4, dtype=torch.float64), 1), torch.arange(30) % 3
    batches = [(x[k : k + 10], y[k : k + 10]) for k in (0, 10, 20)]
    return BatchLoss(model, "cross_entropy"), weights, values.masked_fill(pruned, 0.0), pruned, squares, batches


def test_the_steps_are_those_of_the_formula() -> None:
    loss, weights, values, pruned, squares, batches = problem()
    reached, taken = take_steps(loss, weights, batches, 30, values, pruned, squares, 0.02, lambda _: 1.0)
    place, speed = values.clone(), torch.zeros(12, dtype=torch.float64)
    rho = values[~pruned].square().mean().sqrt()
    for number, (x, y) in enumerate(batches):
        w = place.view(3, 4).clone().requires_grad_()
        nn.functional.cross_entropy(x @ w.T + loss.model.bias.detach(), y).backward()
        g = w.grad.reshape(-1) / (squares.sqrt() + FLOOR * squares.mean().sqrt())
        speed = (MOMENTUM * speed - 0.02 * (1 - number / 3) * rho * g).masked_fill(pruned, 0.0)
        place = place + speed
    assert torch.allclose(reached, place, atol=1e-12)
    assert not reached[pruned].any()
    assert taken == 30


@pytest.mark.parametrize("loss_there", [AWAY * 1.01, math.inf, math.nan])
def test_a_walk_that_leads_away_is_given_up(loss_there: float) -> None:
    loss, weights, values, pruned, squares, batches = problem()
    losses = iter([1.0, loss_there])
    _, taken = take_steps(loss, weights, batches, 30, values, pruned, squares, 0.02, lambda _: next(losses))
    assert taken == 10


def test_walks_never_raise_the_held_out_loss_and_keep_the_mask(toy: Any) -> None:
    notebook = Notebook()
    result = run(toy, schedule=WALKS, max_gradients=20_000, keeper=notebook)
    *_, refit, first, second, third = notebook.stands
    losses = [stand.loss for stand in (refit, first, second, third)]
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0]
    for stand in (first, second, third):
        assert torch.equal(stand.pruned, refit.pruned)
        assert not stand.values[stand.pruned].any()
    assert result.settings["sample_gradients"] == third.gradients <= 20_000


def test_the_first_walk_chooses_a_stride_and_later_ones_take_longer_then_shorter_ones(toy: Any) -> None:
    notebook = Notebook()
    result = run(toy, schedule=WALKS, max_gradients=20_000, keeper=notebook)
    told = [event.values for event in result.trace if event.stage == "stages"][-3:]
    start = notebook.stands[2].stride
    assert told[0]["stride"] in {start * factor for factor in (*STRIDES,)}
    assert told[1]["stride"] == pytest.approx(4 * told[0]["stride"])
    assert told[2]["stride"] == pytest.approx(told[0]["stride"])


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_a_run_broken_off_between_walks_goes_on_to_the_same_bits(toy: Any, stop: int) -> None:
    expected = run(toy, schedule=WALKS, max_gradients=5000, keeper=Notebook())
    first = Notebook(stop=stop)
    with pytest.raises(StoppedError):
        run(toy, schedule=WALKS, max_gradients=5000, keeper=first)
    rest = run(toy, schedule=WALKS, max_gradients=5000, keeper=Notebook(start=first.stands[-1]))
    assert same(rest, expected)
    assert rest.settings["sample_gradients"] == expected.settings["sample_gradients"]


@pytest.mark.parametrize("most", [20, 100, 1000])
def test_walks_keep_within_the_gradients_allowed(toy: Any, most: int) -> None:
    result = run(toy, schedule=Stages(1, refits=0, walks=3), max_gradients=most)
    assert result.settings["sample_gradients"] <= most
    assert [event.done for event in result.trace if event.stage == "stages"] == [1, 2, 3, 4]


def test_methods_that_move_no_weight_do_not_walk(toy: Any) -> None:
    result = run(toy, schedule=WALKS, method="mp")
    assert result.settings["schedule"]["walks"] == 0
