"""A forward pass in parts gives what the whole gives, on a network that changes on the way."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from cases import needs_gpu
from networks import BY_NAME, Network, every_parted_network, stream_of
from torch import Tensor, nn

from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import without_cache
from brainsurgeon.network.parts import Part
from brainsurgeon.network.streaming import Stream, streamed_loss
from brainsurgeon.samples.batches import batch_size


def plain_loss(network: Network, model: nn.Module) -> float:
    loss, total, count = BatchLoss(model, network.loss), 0.0, 0
    with torch.no_grad():
        for batch in network.batches():
            total += float(loss(batch)) * batch_size(batch)
            count += batch_size(batch)
    return total / count


def plain_moments(network: Network, model: nn.Module, layers: list[LinearMap]) -> dict[str, Tensor]:
    """Σ xxᵀ over the columns of each layer's inputs by their number, by plain hooks on whole forward passes."""
    totals: dict[str, Tensor] = {}
    columns: dict[str, int] = {}

    def add(layer: LinearMap, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = layer.read(args, kwargs).double()
        totals[layer.name] = totals.get(layer.name, 0) + x @ x.transpose(1, 2)
        columns[layer.name] = columns.get(layer.name, 0) + x.shape[2]

    handles = [la.module.register_forward_pre_hook(partial(add, la), with_kwargs=True) for la in layers]
    with torch.no_grad():
        for batch in network.batches():
            BatchLoss(model, network.loss)(batch)
    for handle in handles:
        handle.remove()
    return {name: total / columns[name] for name, total in totals.items()}


@pytest.fixture
def uncached(network: Network) -> Iterator[nn.Module]:
    model = network.model()
    with without_cache(model):
        yield model


@every_parted_network
def test_the_loss_in_parts_is_the_plain_loss(network: Network, uncached: nn.Module) -> None:
    assert streamed_loss(stream_of(network, uncached)) == pytest.approx(plain_loss(network, uncached), abs=1e-6)


@every_parted_network
def test_moments_are_those_of_the_network_as_it_is_by_then(network: Network, uncached: nn.Module) -> None:
    """Each group's moments are those of a network whose earlier groups are changed already."""
    model, seen = uncached, []
    twin = copy.deepcopy(model)
    stream = stream_of(network, model)
    twins = {layer.name: layer for layer in stream_of(network, twin).layers}
    for part in stream.parts():
        for group in part.groups:
            found = part.moments(group)
            expected = plain_moments(network, twin, list(twins.values()))
            for layer in group:
                assert torch.allclose(found[layer.name].matrix, expected[layer.name], rtol=1e-4, atol=1e-6)
                seen.append(layer.name)
                for changed in (layer, twins[layer.name]):
                    changed.weight.data.mul_(0.5).add_(0.1)
    assert sorted(seen) == sorted(expected)  # every layer that is called, once
    assert streamed_loss(stream_of(network, model)) == pytest.approx(plain_loss(network, twin), abs=1e-6)


@every_parted_network
@pytest.mark.parametrize("skip", [1, 2, 3])
def test_parts_that_are_skipped_are_gone_through(network: Network, uncached: nn.Module, skip: int) -> None:
    whole, resumed = ([(p.name, moments_of(p)) for p in stream_of(network, uncached).parts(k)] for k in (0, skip))
    rest = whole[min(skip, len(whole)) :]
    assert [name for name, _ in resumed] == [name for name, _ in rest]
    for (_, mine), (_, other) in zip(resumed, rest, strict=True):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


def moments_of(part: Part) -> dict[str, Tensor]:
    return {name: m.matrix for group in part.groups for name, m in part.moments(group).items()}


@every_parted_network
def test_a_model_is_whole_after_an_error_in_any_part(network: Network, uncached: nn.Module) -> None:
    model = uncached
    own = [module.forward for module in model.modules()]
    expected = plain_loss(network, model)
    total = stream_of(network, model).total
    for number in range(total):
        parts = stream_of(network, model).parts()
        for count, _ in enumerate(parts):
            if count == number:
                break
        parts.close()
        assert [module.forward for module in model.modules()] == own
        assert not any(module._forward_pre_hooks for module in model.modules())
        assert torch.is_grad_enabled()
        assert plain_loss(network, model) == expected


def test_a_forward_method_that_is_the_modules_own_is_given_back() -> None:
    """Some libraries wrap a module by setting `forward` on it."""
    network = BY_NAME["residual"]
    model = network.model()
    block = model.blocks[1]
    original = block.forward
    block.forward = wrapped = lambda x: 2 * original(x)
    assert streamed_loss(stream_of(network, model)) == pytest.approx(plain_loss(network, model), abs=1e-6)
    assert block.forward is wrapped


def test_an_error_of_the_model_itself_leaves_it_whole() -> None:
    network = BY_NAME["residual"]
    model = network.model()
    own = [module.forward for module in model.modules()]
    stream = stream_of(network, model)
    stream.batches[2] = (torch.ones(2, 4), torch.zeros(2, dtype=torch.long))  # the stem takes five inputs
    with pytest.raises(RuntimeError, match="shapes"):
        list(stream.parts())
    assert [module.forward for module in model.modules()] == own


@every_parted_network
def test_only_the_part_at_work_runs(network: Network, uncached: nn.Module) -> None:
    """One pass for each group's moments and one for the outputs: never a pass from the start."""
    stream = stream_of(network, uncached)
    if not stream.chain.names:
        return
    first, calls = uncached.get_submodule(stream.chain.names[0]), []
    first.register_forward_hook(lambda *_: calls.append(1))
    for part in stream.parts():
        before = len(calls)
        moments_of(part)
        if part.name not in ("head", "tail", stream.chain.names[0]):
            assert len(calls) == before


@pytest.mark.gpu
@needs_gpu
@every_parted_network
def test_weights_are_at_home_after_work_on_a_device(network: Network, uncached: nn.Module) -> None:
    home, device = uncached, torch.device("cuda")
    stream = on_device(stream_of(network, home), device)
    expected = plain_loss(network, home)
    assert streamed_loss(stream) == pytest.approx(expected, abs=1e-4)
    assert {t.device.type for t in [*home.parameters(), *home.buffers()]} == {"cpu"}
    broken = on_device(stream_of(network, home), device)
    broken.batches[-1] = None
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever the model says of it)
        [moments_of(part) for part in broken.parts()]  # a model in one part runs only when it is asked
    assert {t.device.type for t in [*home.parameters(), *home.buffers()]} == {"cpu"}


def on_device(stream: Stream, device: torch.device) -> Stream:
    from brainsurgeon.samples.batches import map_tensors

    call = stream.call
    stream.call = lambda batch: call(map_tensors(lambda t: t.to(device), batch))
    stream.device = device
    return stream
