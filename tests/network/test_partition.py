"""The chain of a forward pass: found where there is one, and nothing taken for one that is none."""

import pytest
import torch
from networks import Network, chain_of, every_network, maps_of
from torch import Tensor, nn

from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import without_cache
from brainsurgeon.network.partition import Chain, find_chain, first_tensor


@every_network
def test_the_chain_of_every_kind_of_network(network: Network) -> None:
    model = network.model()
    with without_cache(model):
        found = chain_of(model, BatchLoss(model, network.loss), maps_of(model), network.batches()[0])
    assert found.names == network.chain
    assert len(found.extras) == len(found.names)


@every_network
def test_watching_leaves_no_hook(network: Network) -> None:
    model = network.model()
    chain_of(model, BatchLoss(model, network.loss), maps_of(model), network.batches()[0])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_no_hook_is_left_by_a_pass_that_fails() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    with pytest.raises(RuntimeError):
        find_chain(model, lambda: model(torch.ones(1, 2)), ["0.weight", "1.weight"])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_chain_begins_and_ends_with_wanted_layers() -> None:
    """What lies before the first and behind the last of them is of no use."""
    model = nn.Sequential(nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    x = torch.ones(1, 4)
    assert find_chain(model, lambda: model(x), ["1.weight", "3.weight"]).names == ("1", "2", "3")
    assert find_chain(model, lambda: model(x), ["3.weight"]) == Chain()


def test_of_nested_modules_the_finer_chain_is_taken() -> None:
    def inner() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    model = nn.Sequential(inner(), inner())
    layers = [name for name, p in model.named_parameters() if p.dim() == 2]
    found = find_chain(model, lambda: model(torch.ones(1, 4)), layers)
    assert found.names == ("0.0", "0.1", "1.0", "1.1")


def test_what_a_module_gives_beside_its_hidden_state_is_known() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor, mask: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            return self.linear(x).tanh() * mask, x.exp(), scale, mask

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.last = Three(), Three(), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x, _, scale, mask = self.one(x, x.abs(), scale=x.cos())
            return self.last(self.two(x, mask, scale=scale)[0])

    model, layers = Net(), ["one.linear.weight", "two.linear.weight", "last.weight"]
    found = find_chain(model, lambda: model(torch.ones(1, 4)), layers)
    assert found == Chain(("one", "two", "last"), ((None, "scale", 1), (None, "scale", 1), None))


def test_a_layer_belongs_to_the_module_that_holds_it() -> None:
    chain = Chain(("blocks.1", "blocks.10"), (None, None))
    assert chain.part_of("blocks.1.linear.weight") == 0
    assert chain.part_of("blocks.10.linear.weight") == 1
    assert chain.part_of("blocks.2.linear.weight") is None


def test_the_first_tensor_may_come_by_name() -> None:
    x, y = torch.ones(1), torch.zeros(1)
    assert first_tensor((x, y), {}) == (x, [y])
    assert first_tensor((), {"x": x, "y": y}) == (x, [y])
    assert first_tensor((None, x), {})[0] is None
    assert first_tensor((), {}) == (None, [])
