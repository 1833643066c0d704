"""Layer by layer, the kept weights fitted anew so that each layer gives what it gave in the dense network.

With x the inputs that a layer sees in the pruned network, its earlier layers fitted already, and x̄ those in the dense
one, the kept weights S of each row minimise E‖w·x − w̄·x̄‖² + λā‖w − w₀‖²: a Newton step on the Gram matrix
A = E[xxᵀ] with the slope w₀A − w̄B, B = E[x̄xᵀ]. So a layer makes up for what the layers before it have lost; the labels
are not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import torch
from torch import Tensor

from brainsurgeon.engine.curvature import Gram
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.inputs import CrossMoments
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.side_by_side import side_by_side
from brainsurgeon.network.weights import Layer, PrunableWeights
from brainsurgeon.samples.batches import Batch, first

MOST_SAMPLES = 1024
"""Samples that the layers are fitted on: convolutions see each at many positions."""


def reconstruct(
    live: BatchLoss,
    dense: BatchLoss,
    weights: PrunableWeights,
    batches: Sequence[Batch],
    values: Tensor,
    pruned: Tensor,
    damping: float,
) -> Tensor:
    """Return new values of the kept weights; the live model holds them, layer after layer, as the fit goes on.

    Layers that are no plain linear map of their inputs stay as they are.
    """
    batches = list(first(batches, MOST_SAMPLES))
    weights.assign(live.model, values)
    fitted = values.clone()
    with closing(side_by_side(live, dense, weights, batches)) as layers:
        for layer, moments in layers:
            pulse()
            place = layer.columns
            trained = dense.model.get_parameter(layer.name).detach().reshape(-1).double()
            step = _step(layer, moments, values[place].double(), trained, pruned[place], damping)
            fitted[place] = (values[place].double() + step).to(values.dtype).masked_fill(pruned[place], 0.0)
            weights.assign(live.model, fitted)
    return fitted


def _step(
    layer: Layer, moments: CrossMoments, start: Tensor, trained: Tensor, pruned: Tensor, damping: float
) -> Tensor:
    """Return −(A + λāI)_SS⁻¹(w₀A − w̄B)_S for every row."""
    groups, inputs = moments.matrix.shape[:2]
    outputs = layer.size // inputs

    def rows(flat: Tensor) -> Tensor:
        return flat.view(inputs, outputs).T.contiguous() if moments.transposed else flat.view(outputs, inputs)

    def times(matrix: Tensor, flat: Tensor) -> Tensor:
        return torch.bmm(rows(flat).view(groups, -1, inputs), matrix).view(outputs, inputs)

    slope = times(moments.matrix, start) - times(moments.cross, trained)
    gram = Gram(moments.matrix, torch.ones(outputs, dtype=torch.float64, device=start.device), moments.damped(damping))
    gone = rows(pruned).reshape(-1)
    step = gram.moves(gone, torch.zeros_like(start), [slope.reshape(-1)])[1].view(outputs, inputs)
    return (step.T if moments.transposed else step).reshape(-1)
