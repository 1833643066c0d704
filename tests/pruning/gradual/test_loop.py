"""Training with cuts in between: counts along the plan, exact at the end, whatever ends it, and resumed bit by bit."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gradual_cases import FAST
from gradual_cases import data as network_data
from gradual_cases import model as network_model
from hypothesis import given
from hypothesis import strategies as st
from networks import BATCH, BY_NAME, Network
from torch import Tensor
from toys import one_group

from brainsurgeon import prune
from brainsurgeon.engine.budget import Budget
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event, silent
from brainsurgeon.events.clock import TimeUp
from brainsurgeon.network.distillation import Lesson, Teacher
from brainsurgeon.network.statistics import following, train_statistics
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.gradual import loop as loop_module
from brainsurgeon.pruning.gradual.loop import Plan, Training
from brainsurgeon.pruning.gradual.step import OPTIMIZERS, Step
from brainsurgeon.pruning.gradual.student import Student

plans = st.builds(
    Plan, end=st.floats(0.05, 1.0), cuts=st.integers(1, 50), power=st.floats(1, 6), warm=st.floats(0, 0.3)
)


@given(plans, st.integers(0, 500), st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_the_plan_rises_to_the_final_counts_and_never_beyond(plan: Plan, count: int, shares: list[float]) -> None:
    final = Budget((torch.arange(500), torch.arange(500, 600)), (count, count // 5))
    before = (0, 0)
    for share in sorted(shares):
        counts = plan.budget(share, final).counts
        assert all(0 <= b <= c <= f for b, c, f in zip(before, counts, final.counts, strict=True))
        before = counts
    assert plan.budget(0.0, final).counts == (0, 0)
    assert plan.budget(plan.end, final).counts == plan.budget(1.0, final).counts == final.counts


@given(plans)
def test_the_learning_rate_rises_stays_and_falls_to_nothing(plan: Plan) -> None:
    rates = [plan.rate(k / 200) for k in range(200)]
    assert all(0 < rate <= 1 for rate in rates)
    if plan.warm < plan.end:
        assert plan.rate((plan.warm + plan.end) / 2) == 1
    if plan.end < 1:
        assert plan.rate(1.0) == pytest.approx(0, abs=1e-9)
        late = [plan.rate(max(plan.end, plan.warm) + (1 - max(plan.end, plan.warm)) * k / 20) for k in range(21)]
        assert late == sorted(late, reverse=True)


def training_of(network: Network, steps: int = 12, final: int | None = None, **settings: Any) -> Training:
    dense = network.model()
    model = copy.deepcopy(dense)
    student = Student(model, find_weights(model), settings.pop("everything", True))
    batches = network.batches()[:2]

    def endless(start: int) -> Iterator[Any]:
        number = start
        while True:
            yield batches[number % 2]
            number += 1

    settings = {"plan": Plan(cuts=5, end=0.6), "rate": 0.01, "batches": endless, "notify": silent, **settings}
    teacher = Teacher(dense, network.loss, Lesson(0.5, 2.0), batches[0])
    size = student.weights.size
    budget = one_group(size, size // 2 if final is None else final)
    return Training(student=student, teacher=teacher, final=budget, steps=steps, **settings)


def gone(training: Training) -> int:
    return sum(int(mask.sum()) for mask in training.student.pruned().values())


def watched_cuts(training: Training) -> list[tuple[int, int]]:
    """What each cut was asked for, and what was gone after it."""
    made: list[tuple[int, int]] = []
    cut = training.student.cut

    def note(budget: Budget, power: float, returning: bool) -> None:
        cut(budget, power, returning)
        made.append((budget.total, gone(training)))

    training.student.cut = note  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("steps", [1, 2, 7, 30])
@pytest.mark.parametrize("cuts", [1, 4, 100])
@pytest.mark.parametrize("returning", [True, False])
def test_counts_follow_the_plan_and_are_exact_at_the_end(steps: int, cuts: int, returning: bool) -> None:
    plan = Plan(cuts=cuts, end=0.6, returning=returning)
    training = training_of(BY_NAME["residual"], steps, plan=plan)
    made = watched_cuts(training)
    assert training.run() == steps
    assert training.samples == steps * BATCH
    assert all(asked == found for asked, found in made)
    assert [asked for asked, _ in made] == sorted(asked for asked, _ in made)
    assert 1 <= len(made) <= min(steps, cuts)
    allowed = {plan.budget(step / steps, training.final).total for step in range(1, steps + 1)}
    assert {asked for asked, _ in made} <= allowed
    assert made[-1][0] == training.final.total == gone(training)
    for name, pruned in training.student.pruned().items():
        assert (training.student.values[name][pruned] == 0).all()


def test_a_pruned_weight_comes_back_in_training() -> None:
    """Masks are found from the dense values: between two cuts of a run some weight that was out is in again."""
    training = training_of(BY_NAME["residual"], 60, rate=0.1, plan=Plan(cuts=60, end=0.9, power=1.5))
    before: list[Tensor] = []
    returned = 0
    cut = training.student.cut

    def note(*arguments: Any) -> None:
        nonlocal returned
        cut(*arguments)
        now = torch.cat([mask.reshape(-1) for mask in training.student.pruned().values()])
        returned += int((before[-1] & ~now).sum()) if before else 0
        before.append(now)

    training.student.cut = note  # type: ignore[method-assign]
    training.run()
    assert returned > 0
    frozen = training_of(BY_NAME["residual"], 60, rate=0.1, plan=Plan(cuts=60, end=0.9, power=1.5, returning=False))
    before, returned, cut = [], 0, frozen.student.cut
    training, frozen.student.cut = frozen, note  # type: ignore[method-assign]
    frozen.run()
    assert returned == 0


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("name", ["residual", "convolutional"])
@pytest.mark.parametrize("kill", [1, 3, 6, 11])
def test_a_run_from_a_checkpoint_is_the_run_that_was_not_interrupted(
    name: str, kill: int, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, masks, mean squares, the optimizer's moments and batch statistics, to the last bit."""
    monkeypatch.setattr(loop_module, "TOLD", -1.0)  # every step is told
    network, states = BY_NAME[name], dict[int, dict[str, Tensor]]()

    def keep(tensors: dict[str, Tensor], step: int) -> None:
        states[step] = {key: tensor.clone() for key, tensor in tensors.items()}

    plan = Plan(cuts=5, end=0.6, optimizer=optimizer)
    whole = training_of(network, checkpoint=keep, plan=plan)
    whole.student.model.train()
    whole.run()
    assert list(states) == list(range(1, 13))
    resumed = training_of(network, plan=plan)
    resumed.student.model.train()
    assert resumed.run(kill, states[kill]) == 12
    assert resumed.samples == (12 - kill) * BATCH
    expected, found = whole.student.state(), resumed.student.state()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[key], found[key]) for key in expected)


class Clock:
    """A clock that goes on by `tick` seconds whenever it is looked at."""

    def __init__(self, tick: float):
        self.now, self.tick = 100.0, tick

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize("tick", [0.05, 0.3, 5.0])
def test_training_ends_in_time_with_the_exact_count(tick: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same schedule in less time: the cuts go along with the time that has passed."""
    clock = Clock(tick)
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=clock.monotonic))
    training = training_of(BY_NAME["residual"], 100_000, deadline=110.0)
    made = watched_cuts(training)
    taken = training.run()
    assert taken < 100_000
    assert clock.now <= 110.0 + 4 * tick
    assert gone(training) == training.final.total
    if tick == 0.05:
        assert taken > 20
        assert len(made) == 5
        assert [asked for asked, _ in made] == sorted(asked for asked, _ in made)


def test_a_deadline_that_has_passed_leaves_the_cut_alone() -> None:
    training = training_of(BY_NAME["residual"], 10, deadline=0.0)
    assert training.run() == 0
    assert gone(training) == training.final.total


def test_data_that_end_early_leave_the_last_cut() -> None:
    training = training_of(BY_NAME["residual"], 20)
    batches = training.batches
    training.batches = lambda start: islice(batches(start), 3)
    assert training.run() == 3
    assert gone(training) == training.final.total


@pytest.mark.parametrize("rate", [1e30, math.inf])
@pytest.mark.parametrize("steps", [2, 40])
def test_training_that_diverges_is_told_in_words(rate: float, steps: int) -> None:
    training = training_of(BY_NAME["sequential"], steps, rate=rate)
    with pytest.raises(BrainsurgeonError, match=r"training diverged by step \d+ with the learning rate .*lower"):
        training.run()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_noticed(value: float) -> None:
    training = training_of(BY_NAME["residual"])
    training._check_finite(1)
    with torch.no_grad():
        next(iter(training.student.values.values())).view(-1)[3] = value
    with pytest.raises(BrainsurgeonError, match="diverged by step 7"):
        training._check_finite(7)


@pytest.mark.parametrize("deadline", [math.inf, 0.0])
def test_statistics_are_averaged_where_steps_and_time_allow(deadline: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over the first batches again, with the weights as they are in the end."""
    monkeypatch.setattr(loop_module, "AVERAGED", 2)
    for steps, expected in ((19, False), (20, deadline == math.inf)):
        training = training_of(BY_NAME["convolutional"], steps)
        train_statistics(training.student.model)
        norms = following(training.student.model)
        assert norms
        if deadline == 0.0:  # the time is up when the last step is taken
            monkeypatch.setattr(training, "_share", lambda step, steps=steps: step / steps)
            training.deadline = time.monotonic()
        training.run()
        found = [norm.running_mean.clone() for norm in norms]
        for norm in norms:
            norm.momentum = None
            norm.num_batches_tracked.zero_()
        for batch in islice(training.batches(0), 2):
            training.teacher.outputs(training.student.model, batch)
        same = all(torch.allclose(a, norm.running_mean, atol=1e-6) for a, norm in zip(found, norms, strict=True))
        assert same == expected


def test_without_cuts_the_mask_that_it_began_with_stays() -> None:
    training = training_of(BY_NAME["residual"], 10, plan=Plan(end=0.0, cuts=0))
    pruned = {name: torch.rand(mask.shape) < 0.4 for name, mask in training.student.masks.items()}
    training.student.begin(dict(training.student.values), pruned)
    training.run()
    assert all(torch.equal(mask, pruned[name]) for name, mask in training.student.pruned().items())
    assert all((training.student.values[name][mask] == 0).all() for name, mask in pruned.items())


def test_events_tell_the_steps_and_what_is_gone() -> None:
    events: list[Event] = []
    training = training_of(BY_NAME["residual"], 5, notify=events.append)
    training.run()
    last = events[-1]
    assert (last.stage, last.done, last.total) == ("training", 5, 5)
    assert last.values["pruned"] == training.final.total


def test_what_the_plan_leaves_open_is_the_decay_of_many_samples_or_none() -> None:
    for optimizer, usual in OPTIMIZERS.items():
        assert [Plan(optimizer=optimizer).for_few(few).weight_decay for few in (True, False)] == [0.0, usual.decay]
    assert OPTIMIZERS["sgd"].decay < 0.01 * OPTIMIZERS["adamw"].decay  # its rate is thirty times Adam's, and more
    assert [Plan(weight_decay=0.3).for_few(few).weight_decay for few in (True, False)] == [0.3, 0.3]


def test_an_optimizer_that_is_not_known_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="one of adamw, sgd, got 'adam'"):
        Plan(optimizer="adam")


def test_only_prunable_weights_decay() -> None:
    """A weight that no gradient reaches shrinks, a bias that none reaches stays."""
    training = training_of(BY_NAME["residual"], 8, rate=0.05, final=0, plan=Plan(weight_decay=0.1))
    student = training.student
    with torch.no_grad():
        student.values["head.weight"][0, 0] = 2.0
    optimizer = training._optimizer()
    for value in student.values.values():
        value.grad = torch.zeros_like(value)
    before = {name: value.detach().clone() for name, value in student.values.items()}
    optimizer.step()
    for name, value in student.values.items():
        expected = before[name] * (1 - 0.05 * 0.1) if name in student.masks else before[name]
        assert torch.allclose(value.detach(), expected)


def test_every_step_has_the_rate_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    def noting(step: Step, _: bool) -> Callable[[Any], Tensor]:
        def take(batch: Any) -> Tensor:
            rates.extend(group["lr"] for group in step.optimizer.param_groups)
            return step(batch)

        return take

    monkeypatch.setattr(loop_module, "recorded", noting)
    training = training_of(BY_NAME["residual"], 12)
    training.run()
    expected = [0.01 * training.plan.rate(step / 12) for step in range(12) for _ in range(2)]  # of two groups
    assert rates == pytest.approx(expected)
    assert len(set(rates)) > 4


@pytest.mark.parametrize("count", [1, 2])
def test_several_ranks_record_no_steps(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have to talk within a step."""
    asked = list[bool]()
    monkeypatch.setattr(loop_module, "world_size", lambda: count)
    monkeypatch.setattr(loop_module, "recorded", lambda step, wanted: asked.append(wanted) or step)
    training = training_of(BY_NAME["residual"])
    step = training._step(training._optimizer(), lambda *_: torch.zeros(()))
    assert isinstance(step, Step)
    assert training.teacher.trust.mean == step.shares.mean
    assert asked == [count == 1]


@pytest.mark.parametrize(
    "settings", [{"end": 0.0}, {"end": 1.5}, {"cuts": 0}, {"power": 0.0}, {"score_power": -1.0}], ids=str
)
def test_a_plan_that_never_cuts_or_never_ends_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BrainsurgeonError, match="expected end above 0 and up to 1"):
        Plan(**settings)


def test_time_that_is_up_while_statistics_are_averaged_keeps_what_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def late() -> None:
        taken.append(1)
        if len(taken) > 3:
            raise TimeUp

    monkeypatch.setattr(loop_module, "PAYING", 0)
    monkeypatch.setattr(loop_module, "pulse", late)
    result = prune(network_model(), network_data(), 0.6, "gradual", **FAST)
    assert len(taken) == 4
    assert result.settings["sample_gradients"] == 592
    assert not any("time was up" in note for note in result.notes)
