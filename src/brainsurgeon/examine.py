"""One look at the loss around some weights: its mean gradient, and curvature of either kind at any damping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .batches import Batch
from .blocks import make_blocks
from .curvature import Curvature, Fisher, Gram, Reordered
from .errors import BrainsurgeonError
from .events import Callback
from .gradients import collect_gradients, mean_squares
from .inputs import Moments, collect_moments
from .loss import BatchLoss
from .memory import check_fits
from .quadratic import QuadraticModel
from .weights import Layer, PrunableWeights

CURVATURES = ("fisher", "gram")
COLUMNS_PER_ROW = 8
"""Where a Fisher is taken again and again, smaller blocks do better than in one shot."""


@dataclass(frozen=True)
class Examination:
    """The mean gradient a, and a way from a relative damping to the curvatures of the blocks."""

    blocks: Sequence[slice]
    gradient: Tensor
    curvatures: Callable[[float], list[Curvature]]
    notes: tuple[str, ...]

    def model(self, values: Tensor, damping: float) -> QuadraticModel:
        """Return the quadratic model at the weights that were examined; the damping is relative to the curvature."""
        return QuadraticModel(values, self.blocks, self.curvatures(damping))


def examine(
    kind: str,
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Sequence[Batch],
    rows: int,
    group: int,
    blocks: str | int,
    dtype: torch.dtype,
    notify: Callback,
) -> Examination:
    """Take `rows` gradients, means over `group` samples each, at the weights the model has now."""
    if kind == "fisher":
        return _by_fisher(batch_loss, weights, batches, rows, group, blocks, dtype, notify)
    if kind == "gram":
        return _by_gram(batch_loss, weights, batches, rows, group, blocks, dtype, notify)
    raise BrainsurgeonError(f"curvature must be one of {', '.join(CURVATURES)} or auto, got {kind!r}")


def _by_fisher(batch_loss, weights, batches, rows, group, blocks, dtype, notify) -> Examination:  # type: ignore[no-untyped-def]
    device = batch_loss.model.get_parameter(weights.names[0]).device
    check_fits(rows, weights.size, dtype, device)
    gradients = collect_gradients(batch_loss, weights, batches, rows, group, dtype, notify)
    parts = make_blocks(COLUMNS_PER_ROW * gradients.rows if blocks == "auto" else blocks, weights, gradients.rows)
    columns = [gradients.columns[block] for block in parts]
    # One level for all blocks: the damping is then the same trust region for every weight.
    squares = torch.cat([c.float().square().sum(1, dtype=torch.float64) for c in columns]) / gradients.rows
    level = max(float(squares.mean()), 1e-30)

    def curvatures(damping: float) -> list[Curvature]:
        return [Fisher(c, damping * level) for c in columns]

    return Examination(parts, gradients.mean(), curvatures, gradients.notes)


def _by_gram(batch_loss, weights, batches, rows, group, blocks, dtype, notify) -> Examination:  # type: ignore[no-untyped-def]
    mean, squares, _, notes = mean_squares(batch_loss, weights, batches, rows, group, notify)
    moments = collect_moments(batch_loss, weights, batches)
    others = PrunableWeights(tuple(layer for layer in weights.layers if layer.name not in moments))
    if others.layers:
        notes += (f"no plain linear map, so its curvature is the Fisher's: {', '.join(others.names)}",)
        flat = _laid_out(others)
        inside_layers = "layer" if blocks == "model" else blocks  # other layers may lie between these
        fallback = _by_fisher(batch_loss, flat, batches, rows, group, inside_layers, dtype, notify)

    def curvatures(damping: float) -> list[Curvature]:
        of_others = iter(fallback.curvatures(damping)) if others.layers else iter(())
        found: list[Curvature] = []
        for layer in weights.layers:
            if layer.name in moments:
                found.append(_gram(layer, moments[layer.name], squares[layer.columns], damping))
            else:
                found += [next(of_others) for _ in _blocks_of(flat, fallback, layer)]
        return found

    parts: list[slice] = []
    for layer in weights.layers:
        if layer.name in moments:
            parts.append(layer.columns)
        else:
            inside = _blocks_of(flat, fallback, layer)
            shift = layer.offset - inside[0].start
            parts += [slice(block.start + shift, block.stop + shift) for block in inside]
    return Examination(parts, mean, curvatures, notes)


def _gram(layer: Layer, moments: Moments, squares: Tensor, damping: float) -> Curvature:
    """Scale each row's moments so that their trace is the Fisher's."""
    groups, inputs = moments.matrix.shape[:2]
    outputs = layer.size // inputs
    if moments.transposed:
        squares = squares.view(inputs, outputs).T
    trace = moments.matrix.diagonal(dim1=1, dim2=2).sum(1).repeat_interleave(outputs // groups)
    scales = squares.reshape(outputs, inputs).sum(1) / trace.clamp_min(1e-30)
    # Half a row's own, half the layer's: few samples tell little of a row, and nothing of a class they do not hold.
    scales = (0.5 * scales + 0.5 * scales.mean()).clamp_min(1e-30)
    inner = Gram(moments.matrix, scales, moments.damped(damping))
    if not moments.transposed:
        return inner
    order = torch.arange(layer.size, device=squares.device).view(outputs, inputs).T.reshape(-1)
    return Reordered(inner, order)


def _laid_out(weights: PrunableWeights) -> PrunableWeights:
    """Return the same layers as a flat vector of their own."""
    layers, offset = [], 0
    for layer in weights.layers:
        layers.append(Layer(layer.name, layer.shape, offset, layer.size))
        offset += layer.size
    return PrunableWeights(tuple(layers))


def _blocks_of(flat: PrunableWeights, examination: Examination, layer: Layer) -> list[slice]:
    columns = next(own for own in flat.layers if own.name == layer.name).columns
    return [b for b in examination.blocks if columns.start <= b.start < columns.stop]
