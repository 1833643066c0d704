"""A pruned and a dense network side by side: layer after layer, the moments of what both give to it.

The samples move through both networks part by part, so that no layer takes a forward pass from the start.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from torch import Tensor

from brainsurgeon.events.clock import pulse
from brainsurgeon.network.agreement import parts_agree
from brainsurgeon.network.inputs import CrossMoments, collect_cross_moments, cross_moments, order_of_calls
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import without_cache
from brainsurgeon.network.partition import Chain, find_chain, finest_chain
from brainsurgeon.network.parts import Part
from brainsurgeon.network.streaming import Stream
from brainsurgeon.network.weights import Layer, PrunableWeights
from brainsurgeon.samples.batches import Batch, batch_size

Layers = Generator[tuple[Layer, CrossMoments], None, None]
Pairs = Iterator[tuple[Tensor, Tensor]]
"""What goes into a layer of both networks, batch by batch."""


def side_by_side(
    live: BatchLoss,
    dense: BatchLoss,
    weights: PrunableWeights,
    batches: Sequence[Batch],
    constant: bool = False,
    most: int | None = None,
) -> Layers:
    """Yield the layers that are plain linear maps, in the order of the calls, with the moments of their inputs.

    The live network may be smaller. With `constant` one input more is 1 always; `most` is how many columns of a batch
    are looked at.

    The weights of a layer of the live network may be changed before the next layer is asked for, which then sees what
    they give. Until the last one nobody else may run the networks. Where a forward pass is no chain of modules, or
    calls a layer twice, each layer takes passes of its own.
    """
    with without_cache(live.model), without_cache(dense.model):  # a block runs several times on the same samples
        calls = order_of_calls(live, weights, batches[0])
        chain = _chain(live, batches[0], list(calls)) if max(calls.values(), default=0) == 1 else Chain()
        if not chain.names:
            for layer, count in calls.items():
                yield layer, collect_cross_moments(live, dense, layer, batches, count, constant, most)
            return
        layers, samples = {layer.name: layer for layer in calls}, sum(map(batch_size, batches))
        for own, pairs in _streamed(live, dense, list(layers), batches, chain):
            yield layers[own.name], cross_moments(pairs, samples, own.transposed, constant, most)


def _chain(live: BatchLoss, batch: Batch, layers: Sequence[Layer]) -> Chain:
    """Return the chain that a forward pass falls into; none where its parts do not give what the whole gives."""
    if len({parameter.device for parameter in live.model.parameters()}) > 1:
        return Chain()
    names = [layer.name for layer in layers]

    def find(deepest: int | None) -> Chain:
        return find_chain(live.model, lambda: live(batch), names, deepest)  # not every network takes a single sample

    return finest_chain(find, lambda chain: parts_agree(_stream(live, names, [batch], chain)))[0]


def _stream(loss: BatchLoss, names: Sequence[str], batches: Sequence[Batch], chain: Chain) -> Stream:
    device = next(loss.model.parameters()).device
    return Stream(loss.model, loss, list(batches), linear_maps(loss.model, names), chain, device)


def _streamed(
    live: BatchLoss, dense: BatchLoss, names: Sequence[str], batches: Sequence[Batch], chain: Chain
) -> Iterator[tuple[LinearMap, Pairs]]:
    streams = [_stream(loss, names, batches, chain) for loss in (live, dense)]
    for step, other in zip(*(stream.steps() for stream in streams), strict=True):
        # One inside the other: what they set for a while, such as no gradients, must end in the reverse order.
        with closing(step(False)) as own, closing(other(False)) as trained:
            for part in own:
                for twin in trained:
                    yield from _layers(part, twin)


def _layers(part: Part, twin: Part) -> Iterator[tuple[LinearMap, Pairs]]:
    others = {layer.name: layer for layer in twin.layers}
    for layer in (each for group in part.groups for each in group):
        yield layer, _pairs(part, twin, layer, others[layer.name])


def _pairs(part: Part, twin: Part, layer: LinearMap, other: LinearMap) -> Pairs:
    for number in range(part.batches):
        pulse()
        yield from zip(part.inputs(layer, number), twin.inputs(other, number), strict=True)
