"""One examination of the loss around some weights: its mean gradient, and curvature of either kind at any damping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brainsurgeon.engine.blocks import make_blocks
from brainsurgeon.engine.curvature import Curvature, Fisher, Gram, Reordered, Undamped
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, silent
from brainsurgeon.network.gradients import collect_gradients, mean_squares
from brainsurgeon.network.inputs import Moments, collect_moments
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.memory import check_fits
from brainsurgeon.network.weights import Layer, PrunableWeights, laid_out
from brainsurgeon.samples.batches import Batch

CURVATURES = ("fisher", "gram")


@dataclass(frozen=True)
class Rows:
    """How gradients are taken: K rows, each the mean over `group` samples, stored as `dtype`, cut into blocks.

    With `relative` the damping is relative to the mean of the Fisher's diagonal, else it is λ itself. Gradients that
    are all zero are refused unless they `may_vanish`.
    """

    count: int
    group: int = 1
    blocks: str | int = "auto"
    columns_per_row: int = 40
    dtype: torch.dtype = torch.float32
    relative: bool = False
    may_vanish: bool = False


@dataclass(frozen=True)
class Examination:
    """The mean gradient a, and a way from a damping to the curvatures of the blocks."""

    blocks: Sequence[slice]
    gradient: Callable[[], Tensor]
    curvatures: Callable[[float], list[Curvature]]
    rows: int
    notes: tuple[str, ...]

    def model(self, values: Tensor, damping: float, linear: Tensor | None = None) -> QuadraticModel:
        """Return the quadratic model at the weights that were examined."""
        return QuadraticModel(values, self.blocks, self.curvatures(damping), linear)


def examine(
    kind: str,
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Iterable[Batch],
    rows: Rows,
    notify: Callback = silent,
) -> Examination:
    """Examine the loss at the weights the model has now, by the "fisher" or by the "gram" of the layers' inputs."""
    if kind == "fisher":
        return _by_fisher(batch_loss, weights, batches, rows, notify)
    if kind == "gram":
        return _by_gram(batch_loss, weights, list(batches), rows, notify)
    raise BrainsurgeonError(f"curvature must be one of {', '.join(CURVATURES)} or auto, got {kind!r}")


def _by_fisher(
    batch_loss: BatchLoss, weights: PrunableWeights, batches: Iterable[Batch], rows: Rows, notify: Callback
) -> Examination:
    device = batch_loss.model.get_parameter(weights.names[0]).device
    check_fits(rows.count, weights.size, rows.dtype, device)
    gradients = collect_gradients(
        batch_loss, weights, batches, rows.count, rows.group, rows.dtype, notify, rows.may_vanish
    )
    parts = make_blocks(rows.blocks, weights.layers, gradients.rows, rows.columns_per_row)
    columns = [gradients.columns[block] for block in parts]
    level = 1.0
    if rows.relative:  # one level for all blocks: the damping is then the same trust region for every weight
        squares = torch.cat([c.float().square().sum(1, dtype=torch.float64) for c in columns]) / gradients.rows
        level = max(float(squares.mean()), 1e-30)

    def curvatures(damping: float) -> list[Curvature]:
        return [Fisher(c, damping * level) if damping else Undamped(c) for c in columns]

    return Examination(parts, gradients.mean, curvatures, gradients.rows, gradients.notes)


def _by_gram(
    batch_loss: BatchLoss, weights: PrunableWeights, batches: Sequence[Batch], rows: Rows, notify: Callback
) -> Examination:
    mean, squares, count, notes = mean_squares(batch_loss, weights, batches, rows.count, rows.group, notify)
    moments = collect_moments(batch_loss, weights, batches)
    others = PrunableWeights(tuple(layer for layer in weights.layers if layer.name not in moments))
    if others.layers:
        notes += (f"no plain linear map, so its curvature is the Fisher's: {', '.join(others.names)}",)
        flat = laid_out(others.layers)
        fallback = _by_fisher(batch_loss, flat, batches, _inside_layers(rows), notify)

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
    return Examination(parts, lambda: mean, curvatures, count, notes)


def _inside_layers(rows: Rows) -> Rows:
    """Return rows whose blocks stay inside layers: other layers may lie between these."""
    blocks = "layer" if rows.blocks == "model" else rows.blocks
    if blocks == "auto":
        blocks = rows.columns_per_row * rows.count
    return replace(rows, blocks=blocks)


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


def _blocks_of(flat: PrunableWeights, examination: Examination, layer: Layer) -> list[slice]:
    columns = next(own for own in flat.layers if own.name == layer.name).columns
    return [b for b in examination.blocks if columns.start <= b.start < columns.stop]
