"""What the samples tell: the moments that price the units, and the layers of the smaller network fitted anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from brainsurgeon.engine.layer.units import Reader
from brainsurgeon.network.inputs import Moments, collect_moments
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import modes_kept
from brainsurgeon.network.side_by_side import side_by_side
from brainsurgeon.network.statistics import BatchNorm, average_statistics
from brainsurgeon.network.weights import Layer, PrunableWeights
from brainsurgeon.samples.batches import Batch, batch_size
from brainsurgeon.structured.groups import Group
from brainsurgeon.structured.remove import Cuts

COLUMNS = 4096
"""Columns of a batch that moments are taken of: neighbouring positions tell little that is new."""


@dataclass(frozen=True)
class Examination:
    """Each reader's weights and moments, with a constant input where it has a bias, and the costs of its rows."""

    layers: Mapping[str, LinearMap]
    moments: Mapping[str, Moments]
    costs: Mapping[str, Tensor]
    intercepts: Mapping[str, str]
    damping: float

    def readers(self, group: Group, axes: Mapping[str, int]) -> list[Reader]:
        """Return what reads a group, as the algebra takes it; a layer that was not called reads nothing."""
        return [self._reader(group, name, axes[name]) for name in group.readers if name in self.moments]

    def _reader(self, group: Group, name: str, axis: int) -> Reader:
        layer, moments = self.layers[name], self.moments[name]
        rows = layer.rows(layer.weight.detach())[0].double()
        costs = self.costs.get(name)
        if costs is not None:
            # Half a row's own, half the layer's: few samples tell little of a single row.
            rows = rows * (0.5 * costs + 0.5 * costs.mean()).sqrt().to(rows.device).unsqueeze(1)
        matrix = damped(moments, self.damping, rows.shape[1])
        if name in self.intercepts:  # the bias itself loses nothing
            rows = torch.cat([rows, rows.new_zeros(len(rows), 1)], 1)
        else:
            matrix = matrix[:-1, :-1]
        kernel = rows.shape[1] // layer.weight.shape[axis]
        columns = group.columns(name, axis).unsqueeze(2) * kernel + torch.arange(kernel)
        return Reader(rows, matrix, columns.reshape(group.units, -1).to(rows.device))


def damped(moments: Moments, damping: float, inputs: int) -> Tensor:
    """Return A as a mean over columns, with λ times its mean diagonal added on its inputs, but for the constant."""
    matrix = moments.matrix[0] / moments.matrix[0, -1, -1]
    diagonal = matrix.diagonal()
    level = float(diagonal[:inputs].mean())
    diagonal[:inputs] += moments.damped(damping) * (level if level > 0 else 1.0)
    return matrix


def examine_readers(loss: BatchLoss, layers: Mapping[str, LinearMap], batches: Sequence[Batch]) -> dict[str, Moments]:
    """Return the moments of what goes into each layer, with a constant input at the end; one pass."""
    return collect_moments(loss, _only(layers), batches, constant=True, most=COLUMNS)


def _only(layers: Mapping[str, LinearMap]) -> PrunableWeights:
    return PrunableWeights(
        tuple(Layer(name, tuple(la.weight.shape), 0, la.weight.numel()) for name, la in layers.items())
    )


@torch.no_grad()
def fit_again(
    small: BatchLoss,
    dense: BatchLoss,
    layers: Mapping[str, LinearMap],
    of_dense: Mapping[str, LinearMap],
    cuts: Cuts,
    intercepts: Mapping[str, str],
    batches: Sequence[Batch],
    damping: float,
) -> None:
    """Fit the layers of the smaller network one after the other, so that each gives what it gave in the dense one.

    With x its inputs in the smaller network, whose earlier layers are fitted already, and x̄ those in the dense one,
    the weights minimise E‖Wx − W̄x̄‖² with a damping that draws them to those they had.
    """
    for layer, moments in side_by_side(small, dense, _only(layers), batches, constant=True, most=COLUMNS):
        own, trained = layers[layer.name], of_dense[layer.name]
        rows, target = (one.rows(one.weight.detach())[0].double() for one in (own, trained))
        axis = 1 if own.transposed else 0
        kept = cuts.kept.get((layer.name, axis))
        target = target if kept is None else target[kept.to(target.device)]
        matrix, cross = damped(moments, damping, rows.shape[1]), moments.cross[0] / moments.matrix[0, -1, -1]
        zeros = rows.new_zeros(len(rows), 1)
        plain = moments.matrix[0] / moments.matrix[0, -1, -1]
        # The constant's share of both is the bias less the dense one: it starts from zero.
        slope = torch.cat([target, zeros], 1) @ cross - torch.cat([rows, zeros], 1) @ plain
        if layer.name not in intercepts:
            matrix, slope = matrix[:-1, :-1], slope[:, :-1]
        step = torch.linalg.solve(matrix, slope.T).T
        fitted = (rows + step[:, : rows.shape[1]]).unsqueeze(0)
        own.weight.copy_(own.stored(fitted).to(own.weight.dtype))
        if layer.name in intercepts:
            _shift(small.model, intercepts[layer.name], step[:, -1])


def _shift(model: nn.Module, name: str, step: Tensor) -> None:
    """Add to a bias, or take from the mean that a normalisation subtracts."""
    owner, _, own = name.rpartition(".")
    tensor = getattr(model.get_submodule(owner), own)
    tensor += (step if isinstance(tensor, nn.Parameter) else -step).to(tensor.dtype)


@torch.no_grad()
def statistics_again(loss: BatchLoss, batches: Sequence[Batch]) -> None:
    """Take the means and variances of batch normalisation anew from the samples; the last step of the fit."""
    with modes_kept(loss.model):
        for module in loss.model.modules():
            if isinstance(module, BatchNorm):
                module.train()
        average_statistics(loss.model, (partial(loss, batch) for batch in batches if batch_size(batch) > 1))
