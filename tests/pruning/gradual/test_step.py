"""One training step, and an optimizer's state that goes on where it was."""

from __future__ import annotations

import copy

import pytest
import torch
from networks import BY_NAME

from brainsurgeon.network.distillation import Lesson, Teacher
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.gradual.loop import Outputs
from brainsurgeon.pruning.gradual.step import Step, load_optimizer, make_optimizer, optimizer_state, set_rate
from brainsurgeon.pruning.gradual.student import Student


def adam(student: Student) -> torch.optim.Optimizer:
    return torch.optim.AdamW(student.values.values(), lr=0.01, weight_decay=0.1, fused=True)


def test_a_step_is_adams_on_the_gradient_of_the_masked_weights() -> None:
    network = BY_NAME["sequential"]
    dense, batch = network.model(), network.batches()[0]
    student = Student(copy.deepcopy(dense), find_weights(dense), all_parameters=True)
    first = student.weights.names[0]
    student.masks[first][0] = 0
    twin = copy.deepcopy(dense)
    with torch.no_grad():
        twin.get_parameter(first)[0] = 0
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.01, weight_decay=0.1)
    teacher = Teacher(dense, network.loss, Lesson(), batch)
    with teacher.watching(student.model) as value:
        step = Step(student, teacher.trust, adam(student), value, Outputs(student.model, teacher))
        for _ in range(3):
            found = step(batch)
            optimizer.zero_grad()
            assert teacher.parts is not None
            loss = teacher.parts.loss(teacher.outputs(twin, batch), batch)
            loss.backward()
            gradient = twin.get_parameter(first).grad
            assert gradient is not None
            gradient[0] = 0
            optimizer.step()
            assert torch.isclose(found, loss.detach())
    assert teacher.trust.steps == 3
    for name, value_ in student.values.items():
        rows = slice(1, None) if name == first else slice(None)
        assert torch.allclose(value_.detach()[rows], twin.get_parameter(name).detach()[rows], atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_an_optimizer_is_torchs_own_and_only_what_may_be_pruned_decays(kind: str) -> None:
    dense = BY_NAME["sequential"].model()
    student = Student(copy.deepcopy(dense), find_weights(dense), all_parameters=True)
    optimizer = make_optimizer(student, kind, 0.1, 0.2)
    groups = [
        {"params": [p for n, p in dense.named_parameters() if n in student.masks], "weight_decay": 0.2},
        {"params": [p for n, p in dense.named_parameters() if n not in student.masks], "weight_decay": 0.0},
    ]
    twin: torch.optim.Optimizer = torch.optim.AdamW(groups, lr=0.1, betas=(0.9, 0.99))
    if kind == "sgd":
        twin = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        for name, value in student.values.items():
            value.grad = torch.randn(value.shape, generator=generator)
            dense.get_parameter(name).grad = value.grad.clone()
        optimizer.step()
        twin.step()
    for name, value in student.values.items():
        assert torch.allclose(value.detach(), dense.get_parameter(name).detach(), atol=1e-5)


def test_a_rate_is_written_in_place_where_it_is_a_tensor() -> None:
    weight = torch.ones(2, requires_grad=True)
    rate = torch.tensor(1.0)
    optimizer = torch.optim.AdamW([{"params": [weight]}], lr=rate, fused=True)
    set_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == 0.25
    plain = torch.optim.AdamW([weight], lr=1.0)
    set_rate(plain, 0.5)
    assert plain.param_groups[0]["lr"] == 0.5


def test_an_optimizer_goes_on_from_its_state_and_lies_as_its_parameters() -> None:
    """The stored state lies in order; the parameter's channels are last, and its moments must lie like it."""
    start = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    gradients = torch.randn(4, 4, 3, 2, 2, generator=torch.Generator().manual_seed(1))

    def stepped(weight: torch.Tensor, optimizer: torch.optim.Optimizer, some: torch.Tensor) -> None:
        for gradient in some:
            weight.grad = torch.empty_like(weight).copy_(gradient)
            optimizer.step()

    one = start.clone().requires_grad_()
    first = torch.optim.AdamW([one], lr=0.1, fused=True)
    stepped(one, first, gradients[:2])
    stored = {name: tensor.contiguous().clone() for name, tensor in optimizer_state(first).items()}
    other = one.detach().clone().requires_grad_()
    second = torch.optim.AdamW([other], lr=0.1, fused=True)
    load_optimizer(second, stored)
    assert second.state[other]["exp_avg"].stride() == other.stride()
    stepped(one, first, gradients[2:])
    stepped(other, second, gradients[2:])
    assert torch.equal(one, other)
