"""The network under training: what its forward pass sees, which weights go, and which come back."""

import copy
from typing import Any

import pytest
import torch
from cases import CASES, seeded
from hypothesis import given
from hypothesis import strategies as st
from networks import BY_NAME
from torch import Tensor, nn
from toys import one_group

from brainsurgeon.engine.budget import Budget, make_budget
from brainsurgeon.network.distillation import Lesson, Teacher
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.gradual.loop import Outputs
from brainsurgeon.pruning.gradual.student import SQUARES, Student


def student_of(model: nn.Module, everything: bool = True) -> Student:
    return Student(model, find_weights(model), everything)


def line(values: list[float], squares: list[float] | None = None) -> Student:
    """A student of one layer with these weights, and these mean squares of their gradients."""
    student = student_of(nn.Sequential(nn.Linear(len(values), 1)))
    with torch.no_grad():
        student.values["0.weight"].copy_(torch.tensor([values]))
        student.squares["0.weight"].copy_(torch.tensor([squares or [1.0] * len(values)]))
    return student


def kept(student: Student) -> list[int]:
    return student.masks["0.weight"][0].nonzero().squeeze(1).tolist()


def test_a_weight_comes_back_when_it_is_again_among_the_largest() -> None:
    """A masked weight keeps its value; here one that stays shrinks below it, and they change places."""
    student = line([3.0, -2.0, 1.0])
    student.cut(one_group(3, 2), 0.0, returning=True)
    assert kept(student) == [0]
    assert student.effective()["0.weight"].tolist() == [[3.0, 0.0, 0.0]]
    with torch.no_grad():
        student.values["0.weight"][0, 0] = 1.5
    student.cut(one_group(3, 2), 0.0, returning=True)
    assert kept(student) == [1]
    assert student.effective()["0.weight"].tolist() == [[0.0, -2.0, 0.0]]
    student.cut(one_group(3, 1), 0.0, returning=True)
    assert student.effective()["0.weight"].tolist() == [[1.5, -2.0, 0.0]]


def test_no_weight_comes_back_where_none_may() -> None:
    student = line([3.0, -2.0, 1.0])
    student.cut(one_group(3, 2), 0.0, returning=False)
    with torch.no_grad():
        student.values["0.weight"][0, 0] = 1e-6
    student.cut(one_group(3, 2), 0.0, returning=False)
    assert kept(student) == [0]
    assert student.values["0.weight"][0, 1:].tolist() == [0.0, 0.0]


@given(st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=12), st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_lowest_scores_go(values: list[float], share: float, power: float) -> None:
    """|θ|·v^(p/2): with p = 0 the magnitude alone."""
    squares = [(1.0 + k) ** 2 for k in range(len(values))]
    student, count = line(values, squares), round(share * len(values))
    student.cut(one_group(len(values), count), power, returning=True)
    scores = torch.tensor(values).abs() * (torch.tensor(squares) + 1e-16) ** (power / 2)
    gone = [k for k in range(len(values)) if k not in kept(student)]
    assert len(gone) == count
    if 0 < count < len(values):
        assert scores[gone].max() <= scores[kept(student)].min() * (1 + 1e-6)


@pytest.mark.parametrize("rule", ["global", "uniform", {"0.weight": 0.25}])
def test_counts_are_exact_for_every_budget(rule: Any) -> None:
    student = student_of(CASES["linear"].model())
    layers = [(layer.name, layer.offset, layer.size) for layer in student.weights.layers]
    budget: Budget = make_budget(rule, 0.47, layers, torch.device("cpu"))
    student.cut(budget, 0.5, returning=True)
    pruned = torch.cat([mask.reshape(-1) for mask in student.pruned().values()])
    budget.check(pruned)


def test_another_model_is_given_the_masked_weights_and_the_buffers() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    other = copy.deepcopy(model)
    student = student_of(model)
    student.cut(one_group(12, 7), 0.0, returning=True)
    model.train()(torch.randn(8, 3))
    student.hand_over(other)
    assert other.state_dict()["1.num_batches_tracked"] == 1
    for name, value in (student.effective() | dict(model.named_buffers())).items():
        assert torch.equal(other.state_dict()[name], value)
    assert int((other.get_parameter("0.weight") == 0).sum()) == 7


def test_the_forward_pass_sees_the_masked_weights_and_gives_them_alone_gradients() -> None:
    case = CASES["linear"]
    model, batch = case.model().eval(), case.data()
    twin, dense = copy.deepcopy(model), copy.deepcopy(model)
    student = student_of(model)
    student.cut(one_group(72, 40), 0.0, returning=True)
    outputs = Outputs(model, Teacher(dense, "cross_entropy", Lesson(), batch))
    found = student.forward(batch, outputs)
    with torch.no_grad():
        for name, pruned in student.pruned().items():
            twin.get_parameter(name).masked_fill_(pruned, 0.0)
    assert torch.equal(found, twin(batch[0]))
    nn.functional.cross_entropy(found, batch[1]).backward()
    nn.functional.cross_entropy(twin(batch[0]), batch[1]).backward()
    student.take_gradients()
    student.note_gradients()
    for name, value in student.values.items():
        expected = twin.get_parameter(name).grad
        assert expected is not None
        assert value.grad is not None
        if name in student.masks:
            expected = expected * student.masks[name]
            assert torch.allclose(student.squares[name], (1 - SQUARES) * expected.square())
        assert torch.allclose(value.grad, expected)


def test_what_is_trained_are_the_prunable_weights_and_the_others_that_are_not_frozen() -> None:
    def build() -> nn.Module:
        model = CASES["batch_norm_dropout"].model()
        model[5].bias.requires_grad_(False)
        return model

    assert list(student_of(build(), False).values) == ["0.weight", "5.weight"]
    assert set(student_of(build()).values) == {"0.weight", "5.weight", "0.bias", "1.weight", "1.bias"}


def test_a_model_of_half_precision_is_trained_in_float32_and_stays_what_it_is() -> None:
    model = CASES["bfloat16"].model()
    student = student_of(model)
    assert {value.dtype for value in student.values.values()} == {torch.float32}
    student.write(model)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), CASES["bfloat16"].model().parameters(), strict=True)
    )


@pytest.mark.parametrize("name", ["convolutional", "residual"])
def test_a_student_becomes_what_its_state_told(name: str) -> None:
    def drawn() -> Student:
        return student_of(BY_NAME[name].model())

    student = drawn()
    with torch.no_grad():
        for tensor in student.state().values():
            if tensor.is_floating_point():
                tensor.add_(seeded(lambda shape=tensor.shape: torch.rand(shape), 3))
    student.cut(one_group(student.weights.size, student.weights.size // 2), 0.5, returning=True)
    told = {key: value.clone() for key, value in student.stored().items()}
    other = drawn()
    other.restore(told)
    found = other.state()
    assert found.keys() == student.state().keys() == told.keys()
    assert all(torch.equal(found[key], told[key]) for key in told)
    effective: dict[str, Tensor] = student.effective()
    assert all(torch.equal(value, effective[n]) for n, value in other.effective().items())


def test_settled_weights_are_gone_for_good() -> None:
    student = line([3.0, -2.0, 1.0])
    student.cut(one_group(3, 1), 0.0, returning=True)
    assert student.values["0.weight"][0, 2] == 1.0
    student.settle()
    assert student.values["0.weight"][0, 2] == 0.0


@pytest.mark.parametrize("returning", [True, False])
def test_what_was_gone_before_goes_first_at_every_cut(returning: bool) -> None:
    """The largest weight of all, but one that the network that is pruned further does not have."""
    student = line([3.0, -2.0, 1.0])
    student.go_on({"0.weight": torch.tensor([[True, False, False]])})
    assert kept(student) == [1, 2]
    student.cut(one_group(3, 1), 0.0, returning)
    assert kept(student) == [1, 2]
    student.cut(one_group(3, 2), 0.5, returning)
    assert kept(student) == [1]


class Waves(nn.Module):
    """A layer in the space of frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 8)
        self.waves = nn.Parameter(torch.randn(8, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.fft.fft(self.linear(x)) * self.waves).real


def test_complex_parameters_stay_as_they_are() -> None:
    model = Waves()
    before = model.waves.detach().clone()
    student = student_of(model)
    assert list(student.values) == ["linear.weight", "linear.bias"]
    student.write(model)
    assert torch.equal(model.waves, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_weights_are_trained_in_single_precision_or_better(dtype: torch.dtype) -> None:
    model = seeded(lambda: nn.Linear(5, 4), 0).to(dtype)
    before = model.weight.detach().clone()
    student = student_of(model)
    assert student.values["weight"].dtype == torch.promote_types(dtype, torch.float32)
    student.write(model)
    assert torch.equal(model.weight, before)
