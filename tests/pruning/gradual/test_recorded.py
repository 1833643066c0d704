"""Steps that are recorded on a GPU give what the steps themselves give, and are given up where they cannot."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from cases import needs_gpu
from torch import Tensor, nn
from toys import one_group

from brainsurgeon.events import silent
from brainsurgeon.network.distillation import Lesson, Teacher
from brainsurgeon.network.trust import Trust
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.gradual import recorded as module
from brainsurgeon.pruning.gradual.loop import Plan, Training
from brainsurgeon.pruning.gradual.recorded import Recorder, agree, held_by, in_place, put_back, recorded
from brainsurgeon.pruning.gradual.step import Step
from brainsurgeon.pruning.gradual.student import Student
from brainsurgeon.samples.batches import Batch
from brainsurgeon.samples.views import Views


class Net(nn.Module):
    """Convolutions with batch normalisation; `way` says what its forward pass does beside the usual."""

    def __init__(self, way: str = "plain"):
        super().__init__()
        self.way, self.calls = way, 0
        self.one, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.two, self.head = nn.Conv2d(8, 8, 3), nn.Linear(8, 4)
        self.mean = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = torch.relu(self.norm(self.one(x)))
        if self.way == "asks" and float(x.sum()) < 0:  # the device is waited for: no record can hold that
            return x.mean((2, 3))[:, :4]
        if self.way == "replaces":  # a new tensor takes the place of the old one
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
            x = x - self.mean
        if self.way == "replaces a buffer":
            self.norm.running_mean = 0.9 * self.norm.running_mean + 0.1 * x.detach().mean((0, 2, 3))
        if self.way == "changes" and self.calls % 2:  # the record of one call is wrong for the next
            x = 2 * x
        return self.head(self.two(x).mean((2, 3)))


def training(way: str, records: bool, lesson: Lesson, device: str = "cuda", views: bool = False) -> Training:
    torch.manual_seed(0)
    dense = Net(way).to(device).eval()
    dense.mean = dense.mean.to(device)
    model = copy.deepcopy(dense)
    model.norm.train()
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(6, 3, 8, 8, generator=generator).to(device), torch.arange(6, device=device) % 4) for _ in range(5)
    ]

    def endless(start: int) -> Iterator[Batch]:
        for number in itertools.count(start):
            own, other = batches[number % 5], batches[(number + 1) % 5]
            yield Views(own, ((other[0], own[1]),)) if views else own

    student = Student(model, find_weights(model), all_parameters=True)
    teacher = Teacher(dense, "cross_entropy", lesson, batches[0])
    final = one_group(student.weights.size, student.weights.size // 2)
    plan = Plan(cuts=5, end=0.6)
    return Training(student, teacher, endless, plan, final, 40, 0.01, silent, records=records)


def test_a_cpu_takes_the_steps_themselves() -> None:
    run = training("plain", True, Lesson(), "cpu")
    step = Step(run.student, run.teacher.trust, run._optimizer(), lambda *_: torch.zeros(()), run.student.model)
    assert recorded(step) is step


def test_steps_agree_only_where_everything_has_changed_alike() -> None:
    before = {"value/a": torch.zeros(3), "buffer/b": torch.ones(2), "buffer/n": torch.tensor(1)}
    after = {"value/a": torch.full((3,), 0.1), "buffer/b": torch.tensor([1.0, 2.0]), "buffer/n": torch.tensor(2)}
    assert agree(before, after, after)
    assert agree(before, {**after, "value/a": torch.full((3,), 0.1001)}, after)
    for name, other in {
        "value/a": torch.full((3,), 0.2),
        "buffer/b": torch.tensor([1.0, 700.0]),
        "buffer/n": torch.tensor(1),
    }.items():
        assert not agree(before, {**after, name: other}, after)
    assert not agree(before, {**after, "value/a": torch.full((3,), torch.nan)}, after)


def test_a_tensor_in_the_place_of_another_is_noticed() -> None:
    """A buffer or a plain attribute that is assigned anew would lie in the memory of the record."""
    model = Net("replaces")
    held = held_by(model)
    assert {name for _, name in held} == {"mean", "running_mean", "running_var", "num_batches_tracked"}
    model.eval()(torch.randn(2, 3, 8, 8))
    assert not in_place(held, held_by(model))
    plain = Net()
    held = held_by(plain)
    plain.train()(torch.randn(2, 3, 8, 8))  # written in place
    assert in_place(held, held_by(plain))
    plain.extra = torch.zeros(1)
    assert not in_place(held, held_by(plain))
    plain.norm.running_var = torch.zeros(8)
    put_back(plain, held)
    assert in_place(held, held_by(plain))
    assert not hasattr(plain, "extra")


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("lesson", [Lesson(), Lesson(1.0, 4.0, 1.0), Lesson(0.5, 2.0, 1.0, while_better=True)])
@pytest.mark.parametrize("views", [False, True])
def test_recorded_steps_give_the_same_network(lesson: Lesson, views: bool) -> None:
    one, other = (training("plain", records, lesson, views=views) for records in (True, False))
    one.run()
    other.run()
    for name, value in one.student.state().items():
        assert torch.allclose(value.float(), other.student.state()[name].float(), rtol=1e-3, atol=1e-4), name


@needs_gpu
@pytest.mark.gpu
def test_steps_are_played_and_not_only_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Recorder] = []
    monkeypatch.setattr(module, "Recorder", lambda step: made.append(Recorder(step)) or made[-1])
    run = training("plain", True, Lesson(1.0, 4.0, 1.0))
    run.run()
    assert made[0].works
    calls = run.student.model.calls
    assert isinstance(calls, int)
    assert calls < 10  # of 40 steps
    assert run.teacher._aside is not None  # the dense network answered beside the student


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("way", ["asks", "changes", "replaces", "replaces a buffer"])
def test_a_model_that_cannot_be_recorded_is_trained_all_the_same(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Recorder] = []
    monkeypatch.setattr(module, "Recorder", lambda step: made.append(Recorder(step)) or made[-1])
    one, other = training(way, True, Lesson()), training(way, False, Lesson())
    one.run()
    assert not made[0].works
    assert torch.randn(3, device="cuda").isfinite().all()  # the generator is not left in a capture
    if way != "changes":
        other.run()
        for name, value in one.student.values.items():
            assert torch.allclose(value, other.student.values[name], rtol=1e-3, atol=1e-4), name


class Walk:
    """A step that adds the sum of its batch to a weight; it stands for a graph too, which is `wrong` by a share.

    With `replaces` its model has a running mean that is assigned anew; a recording leaves nothing in the new place.
    With `alternates` every second call takes a step twice as long.
    """

    def __init__(self, wrong: float = 0.0, replaces: bool = False, alternates: bool = False):
        self.weight, self.trust, self.wrong, self.replaces = torch.zeros(()), Trust(), wrong, replaces
        self.alternates, self.calls, self.length, self.lengths = alternates, 0, 1, list[int]()
        self.student = SimpleNamespace(values={"w": self.weight}, model=nn.Linear(1, 1))
        self.student.model.register_buffer("mean", torch.zeros(()))
        self.recording, self.played, self.forgotten = False, 0, 0

    def state(self) -> dict[str, Tensor]:
        return {"value/w": self.weight}

    def forget(self, _: dict[str, Tensor]) -> None:
        self.forgotten += 1

    def kernels(self, batch: Tensor) -> Tensor:
        self.calls += 1
        length = 2 if self.alternates and self.calls % 2 else 1
        if self.replaces:
            found = 0.9 * self.student.model.mean + 0.1 * batch.mean()
            self.student.model.mean = torch.tensor(777.0) if self.recording else found
        if self.recording:  # nothing is done; what is played later reads and writes here
            self.place, self.loss, self.length = batch, torch.zeros(()), length
            return self.loss
        self.lengths.append(length)
        self.weight += length * batch.sum()
        return batch.mean()

    def pool(self) -> None:
        """Return nothing: there is no memory of its own."""

    def replay(self) -> None:
        self.played += 1
        self.weight += (1 + self.wrong) * self.length * self.place.sum()
        self.loss.copy_(self.place.mean())

    @contextmanager
    def recorded(self, *_: Any, **__: Any) -> Iterator[None]:
        self.recording = True
        yield
        self.recording = False


def walked(
    wrong: float,
    batches: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
    replaces: bool = False,
    alternates: bool = False,
) -> tuple[Walk, Recorder, list[float]]:
    walk = Walk(wrong, replaces, alternates)
    generator = SimpleNamespace(clone_state=lambda: None)
    stream = SimpleNamespace(wait_stream=lambda _: None)
    for name, instead in {
        "Stream": lambda _: stream,
        "current_stream": lambda _: stream,
        "stream": nullcontext,
        "device": nullcontext,
        "current_device": lambda: 0,
        "default_generators": [generator],
        "synchronize": lambda _: None,
        "CUDAGraph": lambda: walk,
        "graph": walk.recorded,
    }.items():
        monkeypatch.setattr(torch.cuda, name, instead)
    recorder = Recorder(cast(Any, walk))
    return walk, recorder, [float(recorder(batch)) for batch in batches]


def drawn(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(size, generator=generator) for size in sizes]


def test_batches_of_another_form_are_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = drawn(*[4] * 6, 3, 4, 1, 4)
    walk, recorder, losses = walked(0.0, batches, monkeypatch)
    assert losses == pytest.approx([float(batch.mean()) for batch in batches])
    assert float(walk.weight) == pytest.approx(float(torch.cat(batches).sum()))
    assert recorder.works
    assert walk.played == 2 + 2  # to compare, and all of that form behind the compared ones
    assert walk.trust.steps == len(batches)


@pytest.mark.parametrize(("wrong", "believed"), [(0.01, True), (0.2, False), (-1.0, False)])
def test_a_record_is_believed_where_its_change_is_that_of_the_step(
    wrong: float, believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = drawn(*[4] * 10)
    walk, recorder, _ = walked(wrong, batches, monkeypatch)
    assert recorder.works == believed
    assert walk.played == (10 - module.WARM - 1 if believed else 1)
    played = torch.cat(batches[module.WARM + 1 + module.COMPARED :]).sum() if believed else 0
    assert float(walk.weight) == pytest.approx(float(torch.cat(batches).sum() + wrong * played), rel=1e-5)


def test_a_model_that_does_something_else_at_every_second_call_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = drawn(*[4] * 12)
    walk, recorder, _ = walked(0.0, batches, monkeypatch, alternates=True)
    assert not recorder.works
    taken = sum(length * float(batch.sum()) for length, batch in zip(walk.lengths, batches, strict=True))
    assert float(walk.weight) == pytest.approx(taken, rel=1e-5)


def test_a_buffer_that_is_replaced_is_put_back_and_the_steps_are_taken_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = [torch.ones(4)] * 30
    walk, recorder, _ = walked(0.0, batches, monkeypatch, replaces=True)
    assert not recorder.works
    assert (walk.played, walk.forgotten) == (0, 1)
    assert float(walk.student.model.mean) == pytest.approx(1 - 0.9**30)
