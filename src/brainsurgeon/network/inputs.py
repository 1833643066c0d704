"""What goes into each layer: the moments A = E[Σ xxᵀ] of its inputs, over samples and (for convolutions) positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.hooks import RemovableHandle

from brainsurgeon.events.clock import pulse
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import Layer, PrunableWeights
from brainsurgeon.samples.batches import Batch, batch_size

Rows = Callable[[Tensor], Tensor]
"""From a layer's input to its groups × inputs × (samples · positions) matrix X."""


SCARCITY = 50


@dataclass(frozen=True)
class Moments:
    """A of one layer, groups×m×m, from so many columns x; a layer that stores W transposed (inputs first) says so."""

    matrix: Tensor
    columns: int
    transposed: bool = False

    def damped(self, damping: float) -> float:
        """Return more damping where fewer columns than inputs determine the moments badly."""
        return damping * (1 + SCARCITY * self.matrix.shape[1] / self.columns)


@dataclass(frozen=True)
class CrossMoments(Moments):
    """A of a layer of a pruned network, and B = E[Σ x̄xᵀ] with the inputs x̄ of the same layer of the dense network."""

    cross: Tensor = field(kw_only=True)


def collect_moments(
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Iterable[Batch],
    constant: bool = False,
    most: int | None = None,
) -> dict[str, Moments]:
    """Return the mean A of the inputs of every layer that is a plain linear map of them, by parameter name.

    With `constant` one input more is 1 always: what it weighs is a bias. `most` is how many columns of a batch are
    looked at, drawn from all of its samples and positions.

    Linear layers and convolutions (grouped and depthwise too) are; a layer missing from the answer is of another kind
    (embeddings, recurrent or packed weights, transposed convolutions).
    """
    totals: dict[str, Tensor] = {}
    columns: dict[str, int] = {}
    hooks, readers = [], {}
    for layer in weights.layers:
        module = _owner(batch_loss, layer)
        reader = reader_of(module, layer)
        if reader is not None:
            readers[layer.name] = reader
            add = partial(_add, totals, columns, layer.name, reader, constant, most)
            hooks.append(module.register_forward_pre_hook(add, with_kwargs=True))
    samples = 0
    try:
        with torch.no_grad():
            for batch in batches:
                pulse()
                batch_loss(batch)
                samples += batch_size(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name: Moments(total / samples, columns[name], readers[name] is flat_transposed)
        for name, total in totals.items()
    }


class _Seen(Exception):  # noqa: N818 (no error: it ends a forward pass that has shown enough)
    pass


def order_of_calls(batch_loss: BatchLoss, weights: PrunableWeights, batch: Batch) -> dict[Layer, int]:
    """Return the layers that are plain linear maps, in the order a forward pass meets them, with how often it does."""
    calls: dict[Layer, int] = {}

    def count(layer: Layer, *_: object) -> None:
        calls[layer] = calls.get(layer, 0) + 1

    hooks = []
    for layer in weights.layers:
        module = _owner(batch_loss, layer)
        if reader_of(module, layer) is not None:
            hooks.append(module.register_forward_pre_hook(partial(count, layer)))
    _pass(batch_loss, batch, hooks)
    return calls


def collect_cross_moments(
    live: BatchLoss,
    dense: BatchLoss,
    layer: Layer,
    batches: Sequence[Batch],
    calls: int = 1,
    constant: bool = False,
    most: int | None = None,
) -> CrossMoments:
    """Return the moments of a layer's inputs in the live network, alone and with those in the dense network.

    The live network may be smaller. With `constant` one input more is 1 always; `most` is how many columns of a batch
    are looked at.
    """

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in batches:
            pulse()
            yield from zip(*(_inputs(loss, layer, batch, calls) for loss in (live, dense)), strict=True)

    transposed = reader_of(_owner(live, layer), layer) is flat_transposed
    return cross_moments(pairs(), sum(map(batch_size, batches)), transposed, constant, most)


def cross_moments(
    pairs: Iterable[tuple[Tensor, Tensor]],
    samples: int,
    transposed: bool,
    constant: bool = False,
    most: int | None = None,
) -> CrossMoments:
    """Return A and B of a layer from its inputs in two networks, X and X̄ of each batch."""
    own, cross, columns = torch.zeros(()), torch.zeros(()), 0
    for pair in pairs:
        x, trained = (_looked_at(each, constant, most) for each in pair)
        own = own.to(x.device) + torch.bmm(x, x.transpose(1, 2)).double()
        cross = cross.to(x.device) + torch.bmm(trained, x.transpose(1, 2)).double()
        columns += x.shape[2]
    return CrossMoments(own / samples, columns, transposed, cross=cross / samples)


def _inputs(batch_loss: BatchLoss, layer: Layer, batch: Batch, calls: int) -> list[Tensor]:
    """Return X of each call of a layer; the forward pass ends with the last of them."""
    module = _owner(batch_loss, layer)
    reader = reader_of(module, layer)
    assert reader is not None  # order_of_calls names plain linear maps only
    found: list[Tensor] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        found.append(read_input(reader, inputs, named))
        if len(found) == calls:
            raise _Seen

    _pass(batch_loss, batch, [module.register_forward_pre_hook(note, with_kwargs=True)])
    return found


def _owner(batch_loss: BatchLoss, layer: Layer) -> nn.Module:
    return batch_loss.model.get_submodule(layer.name.rpartition(".")[0])


def _pass(batch_loss: BatchLoss, batch: Batch, hooks: list[RemovableHandle]) -> None:
    try:
        with torch.no_grad():
            batch_loss(batch)
    except _Seen:
        pass
    finally:
        for hook in hooks:
            hook.remove()


def read_input(reader: Rows, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> Tensor:
    """Return X of what a layer is given, in at least float32."""
    x = reader([*inputs, *named.values()][0].detach())
    # Half precision would round the sums so that they are not positive definite any more.
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _add(
    totals: dict[str, Tensor],
    columns: dict[str, int],
    name: str,
    reader: Rows,
    constant: bool,
    most: int | None,
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    named: dict[str, Tensor],
) -> None:
    x = read_input(reader, inputs, named)
    x = _looked_at(x, constant, most)
    moments = torch.bmm(x, x.transpose(1, 2)).double()
    totals[name] = totals[name] + moments if name in totals else moments
    columns[name] = columns.get(name, 0) + x.shape[2]


def _looked_at(x: Tensor, constant: bool, most: int | None) -> Tensor:
    """Return some of the columns, the same for every tensor with as many, and a row of ones."""
    if most is not None and x.shape[2] > most:
        order = torch.randperm(x.shape[2], generator=torch.Generator().manual_seed(0))
        x = x[:, :, order[:most].to(x.device)]
    return torch.cat([x, x.new_ones(x.shape[0], 1, x.shape[2])], 1) if constant else x


def reader_of(module: nn.Module, layer: Layer) -> Rows | None:
    """Return how the inputs of a layer are read as columns, None where it is no plain linear map of them."""
    if not layer.name.endswith("weight"):
        return None
    if type(module) is nn.Linear:
        return _flat
    if type(module).__name__ == "Conv1D" and len(layer.shape) == 2:  # as in Hugging Face's GPT-2: y = xW
        return flat_transposed
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and _is_plain(module):
        return partial(_patches, module)
    return None


def _is_plain(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> bool:
    """Say whether a convolution does what PyTorch's own does: a kind of its own may pad, or change its weights."""
    kind = type(module)
    own = next(known for known in (nn.Conv1d, nn.Conv2d, nn.Conv3d) if isinstance(module, known))
    return kind.forward is own.forward and kind._conv_forward is own._conv_forward


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]).T.unsqueeze(0)


def flat_transposed(x: Tensor) -> Tensor:
    """Read the inputs of a layer whose weights lie inputs first."""
    return _flat(x)


def _patches(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """Return the patches that the convolution's kernel sees, in the order of its weights."""
    dims = len(module.kernel_size)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    x = F.pad(x, module._reversed_padding_repeated_twice, mode)
    for axis in range(dims):
        span = module.dilation[axis] * (module.kernel_size[axis] - 1) + 1
        x = x.unfold(2 + axis, span, module.stride[axis])[..., :: module.dilation[axis]]
    # batch, channels, positions…, kernel… → groups, channels of a group · kernel, batch · positions
    kernel = tuple(range(2 + dims, 2 + 2 * dims))
    positions = tuple(range(2, 2 + dims))
    x = x.permute(1, *kernel, 0, *positions)
    inputs = x.shape[0] // module.groups
    for size in module.kernel_size:
        inputs *= size
    return x.reshape(module.groups, inputs, -1)
