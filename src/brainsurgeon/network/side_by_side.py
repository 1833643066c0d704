"""A pruned and a dense network side by side: layer after layer, the moments of what both give to it.

The samples move through both networks part by part, so that no layer takes a forward pass from the start.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from torch import Tensor

from brainsurgeon.events.clock import pulse
from brainsurgeon.network.inputs import CrossMoments, collect_cross_moments, cross_moments, order_of_calls
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.partition import Chain, find_chain
from brainsurgeon.network.parts import Part
from brainsurgeon.network.streaming import Stream, parts_agree
from brainsurgeon.network.weights import Layer, PrunableWeights
from brainsurgeon.samples.batches import Batch, batch_size, cut

Layers = Generator[tuple[Layer, CrossMoments], None, None]


def side_by_side(live: BatchLoss, dense: BatchLoss, weights: PrunableWeights, batches: Sequence[Batch]) -> Layers:
    """Yield the layers that are plain linear maps, in the order of the calls, with the moments of their inputs.

    The weights of a layer of the live network may be changed before the next layer is asked for, which then sees what
    they give. Until the last one nobody else may run the networks. Where a forward pass is no chain of modules, or
    calls a layer twice, each layer takes passes of its own.
    """
    calls = order_of_calls(live, weights, batches[0])
    chain = _chain(live, batches[0], list(calls)) if max(calls.values(), default=0) == 1 else Chain()
    if chain.names:
        yield from _streamed(live, dense, {layer.name: layer for layer in calls}, batches, chain)
        return
    for layer, count in calls.items():
        yield layer, collect_cross_moments(live, dense, layer, batches, count)


def _chain(live: BatchLoss, batch: Batch, layers: Sequence[Layer]) -> Chain:
    """Return the chain that a forward pass falls into; none where its parts do not give what the whole gives."""
    if len({parameter.device for parameter in live.model.parameters()}) > 1:
        return Chain()
    names, probe = [layer.name for layer in layers], cut(batch, slice(1))
    chain = find_chain(live.model, lambda: live(probe), names)
    return chain if chain.names and parts_agree(_stream(live, names, [probe], chain)) else Chain()


def _stream(loss: BatchLoss, names: Sequence[str], batches: Sequence[Batch], chain: Chain) -> Stream:
    device = next(loss.model.parameters()).device
    return Stream(loss.model, loss, list(batches), linear_maps(loss.model, names), chain, device)


def _streamed(
    live: BatchLoss, dense: BatchLoss, layers: dict[str, Layer], batches: Sequence[Batch], chain: Chain
) -> Layers:
    samples = sum(map(batch_size, batches))
    streams = [_stream(loss, list(layers), batches, chain) for loss in (live, dense)]
    for step, other in zip(*(stream.steps() for stream in streams), strict=True):
        # One inside the other: what they set for a while, such as no gradients, must end in the reverse order.
        with closing(step(False)) as own, closing(other(False)) as trained:
            for part in own:
                for twin in trained:
                    for layer, pairs in _layers(part, twin):
                        yield layers[layer.name], cross_moments(pairs, samples, layer.transposed)


def _layers(part: Part, twin: Part) -> Iterator[tuple[LinearMap, Iterator[tuple[Tensor, Tensor]]]]:
    others = {layer.name: layer for layer in twin.layers}
    for layer in (each for group in part.groups for each in group):
        yield layer, _pairs(part, twin, layer, others[layer.name])


def _pairs(part: Part, twin: Part, layer: LinearMap, other: LinearMap) -> Iterator[tuple[Tensor, Tensor]]:
    for number in range(part.batches):
        pulse()
        yield from zip(part.inputs(layer, number), twin.inputs(other, number), strict=True)
