"""Tensors that lie elsewhere come when they are needed, go back when they have changed, and leave nothing behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from brainsurgeon.network.held import KEY, hold, largest_unit, lent, passing, value_of, writing

CPU = torch.device("cpu")


@dataclass
class Kept:
    """Holds a tensor, and counts what is done with it."""

    values: Tensor
    fetched: int = 0
    stored: list[Tensor] = field(default_factory=list)
    device = CPU
    place = "in a test"

    def fetch(self) -> Tensor:
        self.fetched += 1
        return self.values.clone()

    def put(self, values: Tensor) -> None:
        self.stored.append(values)
        self.values = values.clone()


def emptied(model: nn.Module) -> dict[str, Kept]:
    """Put placeholders in the place of a model's parameters; tied ones share one."""
    kept: dict[str, Kept] = {}
    placeholders: dict[Tensor, nn.Parameter] = {}
    held = {}
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        owner, _, own = name.rpartition(".")
        if parameter not in placeholders:
            kept[name] = Kept(parameter.detach().clone())
            placeholders[parameter] = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
            held[placeholders[parameter]] = kept[name]
        model.get_submodule(owner)._parameters[own] = placeholders[parameter]
    hold(model, held)
    return kept


class Net(nn.Module):
    """Blocks in a list, one of them with attention that reads its own layers' weights, and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4, bias=False)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(4, 2, 8, batch_first=True) for _ in range(3)])
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.first.weight
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) + self.shift
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_what_is_lent_is_put_back_only_if_it_has_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    kept = emptied(model)
    placeholders = list(model.parameters())
    with lent(model, model[0], CPU):
        assert torch.equal(model[0].weight, kept["0.weight"].values)
        assert isinstance(model[0].weight, nn.Parameter)
        assert model[1].weight.is_meta
        with torch.no_grad():
            model[0].weight.zero_()
    assert [p is q for p, q in zip(model.parameters(), placeholders, strict=True)] == [True] * 4
    assert [len(kept[name].stored) for name in ("0.weight", "0.bias", "1.weight")] == [1, 0, 0]
    assert not kept["0.weight"].values.any()
    assert kept["1.weight"].fetched == 0


def test_what_is_frozen_is_frozen_while_it_is_lent() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    emptied(model)
    with lent(model, model, CPU):
        assert [parameter.requires_grad for parameter in model.parameters()] == [False, False, True, True]
        model(torch.ones(1, 3)).sum().backward()
        assert model[0].weight.grad is None


def test_an_error_leaves_the_placeholders_and_keeps_what_was_written() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    kept = emptied(model)

    def fail() -> None:
        with lent(model, model, CPU), torch.no_grad():
            model[0].bias.fill_(7)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert model[0].weight.is_meta
    assert model[0].bias.is_meta
    assert kept["0.bias"].values.tolist() == [7, 7, 7]


def test_a_fetch_that_fails_leaves_the_placeholders() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    kept = emptied(model)
    kept["1.weight"].fetch = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError), lent(model, model, CPU):
        pass
    assert all(parameter.is_meta for parameter in model.parameters())


def test_whole_passes_have_one_unit_at_a_time_and_give_what_the_model_gives() -> None:
    model = Net().eval()
    x = torch.randn(2, 5, 4)
    expected = model(x)
    kept = emptied(model)
    here: list[int] = []
    for block in model.blocks:
        block.linear2.register_forward_pre_hook(lambda *_: here.append(sum(not p.is_meta for p in model.parameters())))
    with passing(model, CPU), torch.no_grad():
        assert torch.allclose(model(x), expected, atol=1e-6)  # a fused kernel or not
    each = len(list(model.blocks[0].parameters()))
    assert here == [each] * 3
    assert all(parameter.is_meta for parameter in model.parameters())
    assert kept["first.weight"].fetched == 2
    assert not any(holder.stored for holder in kept.values())
    with pytest.raises(RuntimeError), passing(model, CPU):
        model(torch.randn(2, 5, 3))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not model.first._forward_pre_hooks


def test_a_model_that_is_there_is_left_alone() -> None:
    model = Net()
    with passing(model, CPU):
        assert not any(module._forward_pre_hooks for module in model.modules())
    with lent(model, model, CPU, without=("blocks.0",)):
        assert not any(parameter.is_meta for parameter in model.parameters())
    assert KEY not in model.__dict__
    assert largest_unit(model) == 0


def test_a_chain_can_be_left_out() -> None:
    model = Net()
    emptied(model)
    with lent(model, model, CPU, without=("blocks.0", "blocks.1", "blocks.2")):
        assert model.first.weight is model.head.weight
        assert not model.head.weight.is_meta
        assert all(parameter.is_meta for parameter in model.blocks.parameters())


def test_single_values_are_read_and_written() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    kept = emptied(model)
    assert torch.equal(value_of(model, "0.weight"), kept["0.weight"].values)
    with writing(model, "0.weight") as values:
        values.fill_(2)
    assert kept["0.weight"].values.unique().tolist() == [2]
    plain = nn.Linear(3, 2)
    with writing(plain, "weight") as values:
        values.fill_(3)
    assert value_of(plain, "weight").unique().tolist() == [3]


def test_the_largest_unit_is_a_block_or_all_outside() -> None:
    model = Net()
    emptied(model)
    assert largest_unit(model) == sum(parameter.nbytes for parameter in model.blocks[0].parameters())
    wide = nn.Module()
    wide.first, wide.blocks, wide.head = nn.Linear(50, 4), nn.ModuleList([nn.Linear(4, 4)]), nn.Linear(4, 60)
    emptied(wide)
    outside = [*wide.first.parameters(), *wide.head.parameters()]
    assert largest_unit(wide) == sum(parameter.nbytes for parameter in outside)


def test_what_is_tied_outside_the_blocks_is_brought_and_counted_once() -> None:
    model = Net()
    model.first, model.head = nn.Linear(100, 100), nn.Linear(100, 100, bias=False)
    model.head.weight = model.first.weight
    emptied(model)
    found = largest_unit(model)
    assert found == 4 * (100 * 100 + 100)
    assert largest_unit(model, everything=True) == found + sum(buffer.nbytes for buffer in model.buffers())
    with lent(model, model, CPU, without=("blocks.0", "blocks.1", "blocks.2")):
        assert found == sum(parameter.nbytes for parameter in model.parameters() if not parameter.is_meta)
