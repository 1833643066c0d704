"""The way back block by block gives the costs of the whole way back, on every network that is a chain."""

import pytest
import torch
from networks import BY_NAME, NETWORKS, Network, maps_of, stream_of
from torch import Tensor, nn

from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import without_cache
from brainsurgeon.network.output_costs import output_costs
from brainsurgeon.network.partition import Chain
from brainsurgeon.network.streamed_costs import Entangled, streamed_costs
from brainsurgeon.network.streaming import Stream
from brainsurgeon.samples.batches import Batch, batch_size, map_tensors

CHAINS = [each for each in NETWORKS if each.parts and each.chain and each.name not in ("writing", "looking")]
CPU = torch.device("cpu")


def in_double(network: Network) -> Stream:
    def widened(batch: Batch) -> Batch:
        return map_tensors(lambda t: t.double() if t.is_floating_point() else t, batch)

    model = network.model().double()
    stream = stream_of(network, model, [widened(batch) for batch in network.batches()])
    model.requires_grad_(False)
    return stream


@pytest.mark.parametrize("network", CHAINS, ids=lambda network: network.name)
@pytest.mark.parametrize("state_bytes", [1 << 32, 1])  # all batches at once, or one after the other
def test_costs_block_by_block_are_those_of_the_whole_way_back(
    network: Network, state_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brainsurgeon.network.streamed_costs.STATE_BYTES", state_bytes)
    stream = in_double(network)
    loss = BatchLoss(stream.model, network.loss)
    with without_cache(stream.model):
        expected = output_costs(loss, stream.layers, stream.batches)
        plain = sum(float(loss(batch)) * batch_size(batch) for batch in stream.batches)
        found, total = streamed_costs(stream)
    assert total == pytest.approx(plain, rel=1e-12)
    assert found.keys() == expected.keys()
    for name, costs in found.items():
        assert torch.allclose(costs, expected[name], rtol=1e-5, atol=1e-14), name
    assert not any(module._forward_hooks for module in stream.model.modules())
    assert all(parameter.grad is None for parameter in stream.model.parameters())


def test_blocks_that_write_into_what_they_are_given_cost_what_others_do() -> None:
    """The whole way back fails there."""
    (found, _), (expected, _) = (streamed_costs(in_double(BY_NAME[name])) for name in ("writing", "residual"))
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("name", ["functions", "looking"])
def test_a_network_that_is_no_plain_chain_is_told(name: str) -> None:
    with pytest.raises(Entangled):
        streamed_costs(in_double(BY_NAME[name]))


class Around(nn.Module):
    """What the stem gives goes through the blocks, and past them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(5, 6), nn.Linear(6, 3)
        self.blocks = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        return self.head(self.blocks(x) + x)


class Given(Around):
    """What the stem gives reaches the second block as an argument, too."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Bilinear(6, 6, 6) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        return self.head(self.blocks[1](self.blocks[0](x, x), x))


@pytest.mark.parametrize("kind", [Around, Given])
def test_layers_before_the_chain_that_reach_the_loss_past_it_are_told(kind: type[nn.Module]) -> None:
    network, model = BY_NAME["residual"], kind()
    layers, chain = maps_of(model), Chain(("blocks.0", "blocks.1"), (None, None))
    model.requires_grad_(False)
    with pytest.raises(Entangled):
        streamed_costs(Stream(model, BatchLoss(model, network.loss), network.batches(), layers, chain, CPU))


def test_one_block_at_a_time_holds_what_it_computes() -> None:
    """Every block that is run with gradients has gone all the way back before the next one is run."""
    network = BY_NAME["llama"]
    stream = in_double(network)
    on_the_way: list[str] = []
    most = 0

    def watch(module: nn.Module, args: tuple[Tensor, ...], _: object) -> None:
        nonlocal most
        if args[0].requires_grad and "forward" not in vars(module):  # no module that is only passed over
            on_the_way.append(type(module).__name__)
            most = max(most, len(on_the_way))
            args[0].register_hook(lambda _: on_the_way.clear())  # its slope is known: it has gone back

    for name in stream.chain.names:
        stream.model.get_submodule(name).register_forward_hook(watch)
    with without_cache(stream.model):
        streamed_costs(stream)
    assert most == 1
    assert not on_the_way
