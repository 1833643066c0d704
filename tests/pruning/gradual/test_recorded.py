"""Steps that are recorded on a GPU give what the steps themselves give, and are given up where they cannot."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from cases import needs_gpu
from torch import Tensor, nn
from toys import one_group

from brainsurgeon.events import silent
from brainsurgeon.network.distillation import Lesson, Teacher
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.gradual import recorded as module
from brainsurgeon.pruning.gradual.loop import Plan, Training
from brainsurgeon.pruning.gradual.recorded import Recorder, recorded
from brainsurgeon.pruning.gradual.step import Step
from brainsurgeon.pruning.gradual.student import Student


class Net(nn.Module):
    """Convolutions with batch normalisation; `way` says what its forward pass does beside the usual."""

    def __init__(self, way: str = "plain"):
        super().__init__()
        self.way, self.calls = way, 0
        self.one, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.two, self.head = nn.Conv2d(8, 8, 3), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = torch.relu(self.norm(self.one(x)))
        if self.way == "asks" and float(x.sum()) < 0:  # the device is waited for: no record can hold that
            return x.mean((2, 3))[:, :4]
        if self.way == "changes" and self.calls % 2:  # the record of one call is wrong for the next
            x = 2 * x
        return self.head(self.two(x).mean((2, 3)))


def training(way: str, records: bool, lesson: Lesson, device: str = "cuda") -> Training:
    torch.manual_seed(0)
    dense = Net(way).to(device).eval()
    model = copy.deepcopy(dense)
    model.norm.train()
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(6, 3, 8, 8, generator=generator).to(device), torch.arange(6, device=device) % 4) for _ in range(5)
    ]

    def endless(start: int) -> Iterator[tuple[Tensor, Tensor]]:
        number = start
        while True:
            yield batches[number % 5]
            number += 1

    student = Student(model, find_weights(model), all_parameters=True)
    teacher = Teacher(dense, "cross_entropy", lesson, batches[0])
    final = one_group(student.weights.size, student.weights.size // 2)
    plan = Plan(cuts=5, end=0.6)
    return Training(student, teacher, endless, plan, final, 40, 0.01, silent, records=records)


def test_a_cpu_takes_the_steps_themselves() -> None:
    run = training("plain", True, Lesson(), "cpu")
    step = Step(run.student, run.teacher.trust, run._optimizer(), lambda *_: torch.zeros(()), run.student.model)
    assert recorded(step) is step


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("lesson", [Lesson(), Lesson(1.0, 4.0, 1.0), Lesson(0.5, 2.0, 1.0, while_better=True)])
def test_recorded_steps_give_the_same_network(lesson: Lesson) -> None:
    one, other = training("plain", True, lesson), training("plain", False, lesson)
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


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("way", ["asks", "changes"])
def test_a_model_that_cannot_be_recorded_is_trained_all_the_same(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Recorder] = []
    monkeypatch.setattr(module, "Recorder", lambda step: made.append(Recorder(step)) or made[-1])
    one, other = training(way, True, Lesson()), training(way, False, Lesson())
    one.run()
    assert not made[0].works
    if way == "asks":
        other.run()
        for name, value in one.student.values.items():
            assert torch.allclose(value, other.student.values[name], rtol=1e-3, atol=1e-4), name
