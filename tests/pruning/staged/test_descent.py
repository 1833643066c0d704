"""Walks: the line of steps against one written out, budgets, and what a staged run makes of them."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from cases import seeded
from staging import Notebook, StoppedError, run, same, trained
from torch import Tensor, nn

from brainsurgeon.events.clock import Clock
from brainsurgeon.network.gradients import mean_squares
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.sample_loss import SampleLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.staged.descent import FLOOR, LONG_WALK, LOOKS, MOMENTUM, STRIDES, Walker, take_steps
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.state import FIRST_STRIDE, Stand
from brainsurgeon.samples.held_out import TrainingSamples

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


def test_a_walk_does_not_depend_on_how_layers_share_a_scale() -> None:
    """ReLU(αW₁x)·W₂/α is the same network for every α > 0, so the same steps must lead to the same network."""
    x, y = seeded(lambda: torch.randn(60, 5, dtype=torch.float64), 1), torch.arange(60) % 3
    outputs = []
    for alpha in (1.0, 50.0):
        model = seeded(lambda: nn.Sequential(nn.Linear(5, 8, False), nn.ReLU(), nn.Linear(8, 3, False)).double(), 0)
        with torch.no_grad():
            model[0].weight.mul_(alpha)
            model[2].weight.div_(alpha)
        weights, loss = find_weights(model), BatchLoss(model, "cross_entropy")
        pruned = torch.arange(weights.size) % 3 == 0
        values = weights.flatten(model).masked_fill(pruned, 0.0)
        weights.assign(model, values)
        squares = mean_squares(loss, weights, [(x, y)], 60)[1]
        batches = [(x[k : k + 10], y[k : k + 10]) for k in range(0, 60, 10)]
        reached, _ = take_steps(loss, weights, batches, 60, values, pruned, squares, 0.02, lambda _: 1.0)
        assert not torch.allclose(reached, values, rtol=0.01)
        weights.assign(model, reached)
        outputs.append(model(x).detach())
    assert torch.allclose(*outputs, rtol=1e-6)


def test_a_layer_without_a_gradient_stays() -> None:
    loss, weights, values, pruned, squares, batches = problem()
    nothing = torch.zeros_like(squares)
    reached, _ = take_steps(loss, weights, batches, 30, values, pruned, nothing, 0.02, lambda _: 1.0)
    assert torch.equal(reached, values)


@pytest.mark.parametrize("loss_there", [LOOKS[1 / 4] * 1.01, math.inf, math.nan])
def test_a_walk_that_leads_away_is_given_up(loss_there: float) -> None:
    loss, weights, values, pruned, squares, batches = problem()
    losses = iter([1.0, loss_there])
    _, taken = take_steps(loss, weights, batches, 30, values, pruned, squares, 0.02, lambda _: next(losses))
    assert taken == 10


def test_walks_never_raise_the_held_out_loss_and_keep_the_mask(toy: Any) -> None:
    notebook = Notebook()
    result = run(toy, schedule=WALKS, max_gradients=20_000, keeper=notebook)
    assert [stand.number for stand in notebook.stands] == [1, 2, 3, 4, 5, 6]
    before, walked = notebook.stands[0], notebook.stands[1]  # in the middle of the stages
    assert torch.equal(before.pruned, walked.pruned)
    assert walked.loss <= before.loss
    assert walked.progress == before.progress == 0.5
    *_, refit, second, third = notebook.stands
    losses = [stand.loss for stand in (refit, second, third)]
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0]
    for stand in (second, third):
        assert torch.equal(stand.pruned, refit.pruned)
        assert not stand.values[stand.pruned].any()
    assert result.settings["sample_gradients"] == third.gradients <= 20_000


def test_the_first_walk_chooses_a_stride_and_later_ones_begin_with_a_longer_one(toy: Any) -> None:
    notebook = Notebook()
    run(toy, schedule=WALKS, max_gradients=20_000, keeper=notebook)
    start, first, second, third = (notebook.stands[number].stride for number in (0, 1, 4, 5))
    assert first in {start * factor for factor in STRIDES}
    for before, after in ((first, second), (second, third)):
        assert any(after == pytest.approx(before * LONG_WALK**power) for power in range(1, -len(STRIDES), -1))


def walker(
    toy: Any, lengths: list[int], outcomes: dict[float, float], monkeypatch: pytest.MonkeyPatch, given_up: float = -1.0
) -> Walker:
    """Return a walker that goes nowhere: with each stride the held-out loss falls by what is said, or is given up."""

    def take(loss, weights, batches, count, values, pruned, squares, stride, held):  # type: ignore[no-untyped-def]
        lengths.append(count)
        gain = outcomes.get(round(stride / FIRST_STRIDE, 3))
        return (values + given_up, count // 16) if gain is None else (values + gain, count)

    monkeypatch.setattr("brainsurgeon.pruning.staged.descent.take_steps", take)
    model, data = toy
    weights = find_weights(model)
    loss = BatchLoss(model, "cross_entropy")
    samples = TrainingSamples(data, 0, torch.device("cpu"))
    held = SampleLoss(loss, weights, weights.flatten(model), samples.held_out())
    made = Walker(loss, held, weights, samples, WALKS, 100_000, math.inf, lambda _: 0, lambda _: None, Clock())
    origin = float(weights.flatten(model)[0])
    monkeypatch.setattr(Walker, "_held_loss", lambda _, values: origin - float(values[0]))
    return made


def stand_of(walk: Walker, number: int, stride: float = FIRST_STRIDE) -> Stand:
    values = walk.weights.flatten(walk.loss.model)
    nothing = torch.zeros_like(values)
    return Stand(number, 0.5, values, nothing.bool(), nothing, "gram", stride=stride)


def test_the_first_walk_stops_where_a_shorter_stride_leads_less_far(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    walk = walker(toy, lengths, {64.0: 0.25, 16.0: 0.5, 4.0: 0.125, 1.0: 9.0}, monkeypatch)
    reached = walk(stand_of(walk, 2))
    assert reached.stride == pytest.approx(16 * FIRST_STRIDE)
    assert len(lengths) == 4 - 1  # 256 is given up, 64 and 16 are walked; for a fourth there is not enough left
    assert len(set(lengths)) == 1


@pytest.mark.parametrize("given_up", [-1.0, 0.125])
def test_a_later_walk_that_is_given_up_begins_again_with_a_shorter_stride(
    toy: Any, given_up: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    walk = walker(toy, lengths, {4.0: 0.5, 1.0: 9.0}, monkeypatch, given_up)
    reached = walk(stand_of(walk, 6, 16 * FIRST_STRIDE))
    assert reached.stride == pytest.approx(4 * FIRST_STRIDE)
    assert len(lengths) == 3  # 64 and 16 are given up
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[2] > 0.8 * lengths[0]


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_a_run_broken_off_between_walks_goes_on_to_the_same_bits(toy: Any, stop: int) -> None:
    expected = run(toy, schedule=WALKS, max_gradients=5000, keeper=Notebook())
    first = Notebook(stop=stop)
    with pytest.raises(StoppedError):
        run(toy, schedule=WALKS, max_gradients=5000, keeper=first)
    rest = run(toy, schedule=WALKS, max_gradients=5000, keeper=Notebook(start=first.stands[-1]))
    assert same(rest, expected)
    assert rest.settings["sample_gradients"] == expected.settings["sample_gradients"]


def test_blends_follow_the_seed(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noting(batches: Any, seed: int) -> Any:
        seeds.append(seed)
        return batches

    monkeypatch.setattr("brainsurgeon.pruning.staged.descent.blend", noting)
    found = []
    for seed in (0, 1):
        run(toy, schedule=WALKS, max_gradients=2000, seed=seed)
        found.append(set(seeds))
        seeds.clear()
    assert found[0]
    assert not found[0] & found[1]


@pytest.mark.parametrize("most", [20, 100, 1000])
def test_walks_keep_within_the_gradients_allowed(toy: Any, most: int) -> None:
    result = run(toy, schedule=Stages(1, refits=0, walks=3), max_gradients=most)
    assert result.settings["sample_gradients"] <= most
    assert [event.done for event in result.trace if event.stage == "stages"] == [1, 2, 3, 4]


def test_a_walk_in_the_middle_leaves_the_later_stages_their_gradients(toy: Any) -> None:
    notebook = Notebook()
    run(toy, schedule=Stages(4, refits=2, walks=2), max_gradients=2000, keeper=notebook)
    walk, last = notebook.stands[2], notebook.stands[-1]
    assert 0 < walk.walked <= 0.6 * 2000
    looked = [stand.gradients - stand.walked for stand in notebook.stands]
    assert looked[2] == looked[1]
    assert looked[3] > looked[2]
    assert 0.3 * 2000 <= looked[-1] <= 0.4 * 2000
    assert last.gradients <= 2000


def test_methods_that_move_no_weight_do_not_walk(toy: Any) -> None:
    result = run(toy, schedule=WALKS, method="mp")
    assert result.settings["schedule"]["walks"] == 0


def test_of_the_way_the_best_part_is_taken(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = walker(toy, [], {4.0: 1.0}, monkeypatch)
    stand = stand_of(walk, 6)
    origin = float(stand.values[0])
    monkeypatch.setattr(Walker, "_held_loss", lambda _, values: abs(float(values[0]) - origin - 0.5))
    reached = walk(stand)
    assert torch.allclose(reached.values, stand.values + 0.5)
    assert reached.loss == pytest.approx(0, abs=1e-6)


def test_walks_along_the_distance_are_on_blended_samples_and_others_are_not(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        "brainsurgeon.pruning.staged.descent.blend", lambda batches, number: seen.append(number) or batches
    )
    run(toy, schedule=WALKS, max_gradients=5000)  # few samples are held out, so the distance judges
    assert set(seen) == {2, 5, 6}
    seen.clear()
    monkeypatch.setattr("brainsurgeon.pruning.staged.run.ENOUGH", 10)
    run(toy, schedule=WALKS, max_gradients=5000)
    assert not seen
