"""Training: its steps against the formula written out, its limits, and what a staged run makes of it."""

import math
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from cases import seeded
from staging import Notebook, StoppedError, run, same, trained
from torch import Tensor, nn

from brainsurgeon.events.clock import Clock
from brainsurgeon.network.gradients import mean_squares
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.sample_loss import SampleLoss, batch_gradient
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.staged.descent import FLOOR, GIVEN_UP, LONGER, MOMENTUM, RATES, SCOUTED, Descent, take_steps
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.state import FIRST_RATE, Choice, State
from brainsurgeon.samples.held_out import TrainingSamples

TRAININGS = Stages(2, refits=1, trainings=3)


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


def test_training_does_not_depend_on_how_layers_share_a_scale() -> None:
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


@pytest.mark.parametrize("loss_there", [GIVEN_UP[1 / 4] * 1.01, math.inf, math.nan])
def test_a_training_that_leads_away_is_given_up(loss_there: float) -> None:
    loss, weights, values, pruned, squares, batches = problem()
    losses = iter([1.0, loss_there])
    _, taken = take_steps(loss, weights, batches, 30, values, pruned, squares, 0.02, lambda _: next(losses))
    assert taken == 10


def test_trainings_never_raise_the_held_out_loss_and_keep_the_mask(toy: Any) -> None:
    notebook = Notebook()
    result = run(toy, schedule=TRAININGS, max_gradients=20_000, store=notebook)
    assert [state.number for state in notebook.states] == [1, 2, 3, 4, 5, 6]
    before, trained_ = notebook.states[0], notebook.states[1]  # in the middle of the stages
    assert torch.equal(before.pruned, trained_.pruned)
    assert trained_.loss <= before.loss
    assert trained_.progress == before.progress == 0.5
    *_, refit, second, third = notebook.states
    losses = [state.loss for state in (refit, second, third)]
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0]
    for state in (second, third):
        assert torch.equal(state.pruned, refit.pruned)
        assert not state.values[state.pruned].any()
    assert result.settings["sample_gradients"] == third.gradients <= 20_000


def test_the_first_training_chooses_a_rate_and_later_ones_begin_with_a_larger_one(toy: Any) -> None:
    notebook = Notebook()
    run(toy, schedule=TRAININGS, max_gradients=20_000, store=notebook)
    start, first, second, third = (notebook.states[number].choice.rate for number in (0, 1, 4, 5))
    assert first in {start * factor for factor in RATES}
    for before, after in ((first, second), (second, third)):
        assert any(after == pytest.approx(before * LONGER**power) for power in range(1, -len(RATES), -1))


def descent(
    toy: Any, lengths: list[int], outcomes: dict[float, float], monkeypatch: pytest.MonkeyPatch, given_up: float = -1.0
) -> Descent:
    """Return a training that goes nowhere: with each rate the held-out loss falls by what is said, or is given up."""

    def take(loss, weights, batches, count, values, pruned, squares, rate, held):  # type: ignore[no-untyped-def]
        lengths.append(count)
        gain = outcomes.get(round(rate / FIRST_RATE, 3))
        return (values + given_up, count // 16) if gain is None else (values + gain, count)

    monkeypatch.setattr("brainsurgeon.pruning.staged.descent.take_steps", take)
    model, data = toy
    weights = find_weights(model)
    loss = BatchLoss(model, "cross_entropy")
    samples = TrainingSamples(data, 0, torch.device("cpu"))
    held = SampleLoss(loss, weights, weights.flatten(model), samples.held_out())
    made = Descent(loss, held, weights, samples, TRAININGS, 100_000, lambda _: 0, lambda _: None, Clock())
    origin = float(weights.flatten(model)[0])
    monkeypatch.setattr(Descent, "_held_loss", lambda _, values: origin - float(values[0]))
    return made


def state_of(train: Descent, number: int, rate: float = FIRST_RATE) -> State:
    values = train.weights.flatten(train.loss.model)
    nothing = torch.zeros_like(values)
    return State(number, 0.5, values, nothing.bool(), nothing, Choice("gram", rate=rate))


def test_the_first_training_stops_where_a_smaller_rate_leads_less(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    train = descent(toy, lengths, {64.0: 0.25, 16.0: 0.5, 4.0: 0.125, 1.0: 9.0}, monkeypatch)
    reached = train(state_of(train, 2))
    assert reached.choice.rate == pytest.approx(16 * FIRST_RATE)
    assert len(lengths) == 4 - 1  # 256 is given up, 64 and 16 are taken whole; for a fourth there is not enough left
    assert len(set(lengths)) == 1


@pytest.mark.parametrize("given_up", [-1.0, 0.125])
def test_a_later_training_that_is_given_up_begins_again_with_a_smaller_rate(
    toy: Any, given_up: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    train = descent(toy, lengths, {4.0: 0.5, 1.0: 9.0}, monkeypatch, given_up)
    reached = train(state_of(train, 6, 16 * FIRST_RATE))
    assert reached.choice.rate == pytest.approx(4 * FIRST_RATE)
    assert len(lengths) == 3  # 64 and 16 are given up
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[2] > 0.8 * lengths[0]


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_a_run_broken_off_between_trainings_goes_on_to_the_same_bits(toy: Any, stop: int) -> None:
    expected = run(toy, schedule=TRAININGS, max_gradients=5000, store=Notebook())
    first = Notebook(stop=stop)
    with pytest.raises(StoppedError):
        run(toy, schedule=TRAININGS, max_gradients=5000, store=first)
    rest = run(toy, schedule=TRAININGS, max_gradients=5000, store=Notebook(start=first.states[-1]))
    assert same(rest, expected)
    assert rest.settings["sample_gradients"] == expected.settings["sample_gradients"]


def test_mixtures_follow_the_seed(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noting(batches: Any, seed: int) -> Any:
        seeds.append(seed)
        return batches

    monkeypatch.setattr("brainsurgeon.pruning.staged.descent.mixup", noting)
    found = []
    for seed in (0, 1):
        run(toy, schedule=TRAININGS, max_gradients=2000, seed=seed)
        found.append(set(seeds))
        seeds.clear()
    assert found[0]
    assert not found[0] & found[1]


@pytest.mark.parametrize("most", [20, 100, 1000])
def test_trainings_keep_within_the_gradients_allowed(toy: Any, most: int) -> None:
    result = run(toy, schedule=Stages(1, refits=0, trainings=3), max_gradients=most)
    assert result.settings["sample_gradients"] <= most
    assert [event.done for event in result.trace if event.stage == "stages"] == [1, 2, 3, 4]


def test_a_training_in_the_middle_leaves_the_later_stages_their_gradients(toy: Any) -> None:
    notebook = Notebook()
    run(toy, schedule=Stages(4, refits=2, trainings=2), max_gradients=2000, store=notebook)
    middle, last = notebook.states[2], notebook.states[-1]
    assert 0 < middle.trained <= 0.6 * 2000
    examined = [state.gradients - state.trained for state in notebook.states]
    assert examined[2] == examined[1]
    assert examined[3] > examined[2]
    assert 0.3 * 2000 <= examined[-1] <= 0.4 * 2000
    assert last.gradients <= 2000


def test_methods_that_move_no_weight_do_not_train(toy: Any) -> None:
    result = run(toy, schedule=TRAININGS, method="mp")
    assert result.settings["method"]["schedule"]["trainings"] == 0


def test_of_the_way_the_best_part_is_taken(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    train = descent(toy, [], {4.0: 1.0}, monkeypatch)
    state = state_of(train, 6)
    origin = float(state.values[0])
    monkeypatch.setattr(Descent, "_held_loss", lambda _, values: abs(float(values[0]) - origin - 0.5))
    reached = train(state)
    assert torch.allclose(reached.values, state.values + 0.5)
    assert reached.loss == pytest.approx(0, abs=1e-6)


def test_trainings_along_the_distance_are_on_mixed_samples_and_others_are_not(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        "brainsurgeon.pruning.staged.descent.mixup", lambda batches, number: seen.append(number) or batches
    )
    run(toy, schedule=TRAININGS, max_gradients=5000)  # few samples are held out, so the distance judges
    assert set(seen) == {2, 5, 6}
    seen.clear()
    monkeypatch.setattr("brainsurgeon.pruning.staged.method.ENOUGH", 10)
    run(toy, schedule=TRAININGS, max_gradients=5000)
    assert not seen


def test_every_gradient_of_a_training_is_counted(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the steps are scaled by too: 240 samples are not held out."""
    lengths: list[int] = []
    train = descent(toy, lengths, {256.0: 0.5, 64.0: 0.25}, monkeypatch)
    start = replace(state_of(train, 2), gradients=70, trained=30)
    reached = train(start)
    assert reached.gradients == 70 + min(SCOUTED, 240) + sum(lengths)
    assert reached.trained == 30 + min(SCOUTED, 240) + sum(lengths)


@pytest.mark.parametrize("number", [2, 5, 6])
@pytest.mark.parametrize("owed", [0, 50_000, 90_000])
def test_what_is_owed_to_later_stages_is_left(
    toy: Any, number: int, owed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    whole = {round(LONGER**power, 3): 0.5 for power in range(-2, 5)}
    train = replace(descent(toy, lengths, whole, monkeypatch), owed=lambda _: owed)
    reached = train(state_of(train, number))
    assert lengths
    assert reached.gradients <= 100_000 - owed
    if number == 6:  # the last one takes all that is left
        assert reached.gradients >= 100_000 - owed - LONGER


class Ticking:
    """A clock that is a second on each time it is read."""

    def __init__(self) -> None:
        self.now = -1.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


class Leaving(Clock):
    """A clock that leaves so many seconds."""

    left = 0.0


@pytest.mark.parametrize(("left", "affordable"), [(-0.5, 0), (0.0, 0), (2.0, 2 * 240), (10.0, 10 * 240)])
def test_a_training_takes_no_more_than_fits_before_its_deadline(
    toy: Any, left: float, affordable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """240 gradients take a second on this clock; from then on, so many more fit."""
    lengths: list[int] = []
    clock = Leaving()
    clock.left = left  # type: ignore[misc]
    train = replace(descent(toy, lengths, {4.0: 0.5}, monkeypatch), clock=clock)
    monkeypatch.setattr("brainsurgeon.pruning.staged.descent.time", Ticking())
    train(state_of(train, 6))
    assert 0.9 * affordable - LONGER <= sum(lengths) <= affordable


def test_every_training_draws_samples_of_its_own(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another order: the same from the same seed, for the scales of the steps and for the steps themselves."""
    drawn: list[tuple[int, Tensor]] = []

    def noting(self: TrainingSamples, count: int, stage: int, weights: Tensor | None = None) -> Any:
        for batch in draw(self, count, stage, weights):
            drawn.append((stage, batch[0]))
            yield batch

    draw = TrainingSamples.draw
    monkeypatch.setattr(TrainingSamples, "draw", noting)
    orders = []
    for number in (2, 5, 6, 2):
        train = descent(toy, [], {4.0: 0.5, 256.0: 0.5}, monkeypatch)
        drawn.clear()
        list(train._batches(240, number))
        train._prepare(state_of(train, number), number == 2)
        assert len({stage for stage, _ in drawn}) == 2
        orders.append(torch.cat([x for _, x in drawn]))
    assert torch.equal(orders[0], orders[3])
    for one, other in combinations(orders[:3], 2):
        assert not torch.equal(one[:240], other[:240])
        assert not torch.equal(one[240:], other[240:])


@pytest.mark.parametrize("enough", [10, 1000], ids=["by the loss", "by the distance"])
def test_no_training_learns_from_what_is_held_out(toy: Any, enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its steps nor their scales: mixed samples keep their targets, and each target here is one of a kind."""
    seen: list[Tensor] = []

    def scaled(loss: Any, weights: Any, batches: Any, *rest: Any) -> Any:
        batches = list(batches)
        seen.extend(batch[1] for batch in batches)
        return mean_squares(loss, weights, batches, *rest)

    def stepped(loss: Any, weights: Any, values: Tensor, batch: Any) -> Tensor:
        seen.append(batch[1])
        return batch_gradient(loss, weights, values, batch)

    monkeypatch.setattr("brainsurgeon.pruning.staged.descent.mean_squares", scaled)
    monkeypatch.setattr("brainsurgeon.pruning.staged.descent.batch_gradient", stepped)
    monkeypatch.setattr("brainsurgeon.pruning.staged.method.ENOUGH", enough)
    data = (toy[1][0], torch.linspace(0, 1, 900).view(300, 3))
    run((toy[0], data), loss="mse", schedule=TRAININGS, max_gradients=20_000)
    held = TrainingSamples(data, 0, torch.device("cpu")).held_out()[0][1]
    found = set(torch.cat(seen)[:, 0].tolist())
    assert found == set(data[1][:, 0].tolist()) - set(held[:, 0].tolist())
