"""A part of a forward pass: layers that share an input are one group, and moments are of every call."""

import pytest
import torch
from networks import maps_of
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.parts import Part


class Attention(nn.Module):
    """q, k and v share their input; the gate has the same values, in a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.gate, self.out, self.unused = (nn.Linear(4, 4) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.q(x) * self.k(x) + self.v(x)
        return self.out(mixed * self.gate(x.clone()))


class Twice(nn.Module):
    """The same layer before and after another."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.between = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.between(self.again(x)))


def part_of(model: nn.Module, batches: list[Tensor]) -> Part:
    def run(number: int) -> Tensor:
        return model(batches[number])

    part = Part("model", maps_of(model), run, len(batches))
    part.find_groups()
    return part


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, 4, generator=generator) for size in (5, 3)]


def test_layers_that_are_given_the_same_tensor_are_a_group_in_the_order_of_the_calls() -> None:
    groups = part_of(Attention(), batches()).groups
    assert [[layer.name for layer in group] for group in groups] == [
        ["q.weight", "k.weight", "v.weight"],
        ["gate.weight"],
        ["out.weight"],
    ]


def test_the_moments_of_a_group_are_taken_once_and_are_the_mean_over_all_columns() -> None:
    data = batches()
    part = part_of(Attention(), data)
    found = part.moments(part.groups[0])
    x = torch.cat(data).double()
    for name in ("q.weight", "k.weight", "v.weight"):
        assert torch.allclose(found[name].matrix[0], x.T @ x / len(x), atol=1e-6)
        assert found[name].columns == len(x)


def test_a_pass_ends_with_the_last_layer_of_the_group() -> None:
    model, data = Attention(), batches()
    part = part_of(model, data)
    seen: list[int] = []
    model.out.register_forward_hook(lambda *_: seen.append(1))
    part.moments(part.groups[0])
    assert not seen


def test_every_call_of_a_layer_counts() -> None:
    model, data = Twice(), batches()
    part = part_of(model, data)
    assert [[layer.name for layer in group] for group in part.groups] == [["again.weight"], ["between.weight"]]
    x = torch.cat(data)
    both = torch.cat([x, model.between(model.again(x))]).double().detach()
    found = part.moments(part.groups[0])["again.weight"]
    assert found.columns == len(both)
    assert torch.allclose(found.matrix[0], both.T @ both / len(both), atol=1e-6)


def test_convolutions_of_a_group_have_moments_of_their_own() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.wide = nn.Conv1d(4, 2, 1), nn.Conv1d(4, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.small(x) + self.wide(x)

    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    part = part_of(Branches(), [x])
    assert len(part.groups) == 1
    found = part.moments(part.groups[0])
    assert (found["small.weight"].matrix.shape, found["wide.weight"].matrix.shape) == ((1, 4, 4), (1, 12, 12))
    flat = x.permute(0, 2, 1).reshape(-1, 4).double()
    assert torch.allclose(found["small.weight"].matrix[0], flat.T @ flat / len(flat), atol=1e-6)


def test_a_layer_that_sees_nothing_is_named() -> None:
    model = Attention()
    part = part_of(model, batches())
    unused = [layer for layer in part.layers if layer.name == "unused.weight"]
    with pytest.raises(BrainsurgeonError, match=r"'unused.weight' saw no input"):
        part.moments(unused)


def test_hooks_are_gone_after_a_pass_that_fails() -> None:
    model, data = Attention(), batches()
    part = part_of(model, data)
    data[1] = torch.ones(2, 3)
    with pytest.raises(RuntimeError):
        part.moments(part.groups[0])
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_survey_gives_the_moments_of_all_groups_in_one_pass_and_goes_on() -> None:
    model, data, moved = Attention(), batches(), dict[int, Tensor]()
    part = part_of(model, data)
    expected = {name: m for group in part.groups for name, m in part.moments(group).items()}
    part.move = moved.__setitem__
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    found = part.survey(part.groups)
    part.go_on()
    assert len(calls) == len(data)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name].matrix, expected[name].matrix) for name in found)
    assert [torch.equal(moved[k], model(x)) for k, x in enumerate(data)] == [True, True]


def test_a_survey_that_would_take_too_much_memory_takes_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, moved = Attention(), batches(), list[int]()
    part = part_of(model, data)
    whole = part.survey(part.groups)
    monkeypatch.setattr("brainsurgeon.network.parts.SURVEYED_BYTES", 2 * 8 * 4 * 4)  # two matrices of three
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    part.move = lambda number, _: moved.append(number)
    found = part.survey(part.groups)
    assert len(calls) == 2 * len(data)
    assert moved == [0, 1]
    assert all(torch.equal(found[name].matrix, whole[name].matrix) for name in whole)
