"""Which labels the Fisher matrix is taken with: the data's own, some that the model draws, or all there can be.

Where the loss of a sample is a mean over M terms of −log p(y|f) at the outputs f, with Jacobian J, its Gauss–Newton
matrix is JᵀΛJ/M, with Λ the Fisher matrix of the terms; the empirical Fisher matrix puts the gradients at the data's
labels in its place. Here every row of G is ∇⟨s, f⟩ = Jᵀs, for an s that is constant in the weights:

* sampled: s = ∇_f(−log p(y|f))/√M with y drawn from p, so that E[ssᵀ] = Λ/M, where a true label would give
  s = ∇_f(−log p(y|f))/M; over B samples the rows are added up and divided by √B;
* exact: s runs through the R columns of a square root of Λ/M, for classes √p_c ∇_f(−log p_c): the gradient at every
  label c by its probability. The rows are scaled by √R, so that GᵀG/K with its K rows is a mean over K/R samples.

Both are then (in expectation, or exactly) the Gauss–Newton matrix of the mean loss, for any M and B.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import BatchLoss, LossLike, call
from brainsurgeon.network.match import Match
from brainsurgeon.network.prediction import CLASSES, Prediction, prediction_of
from brainsurgeon.samples.batches import Batch, batch_size, map_tensors, regroup

FEWEST_SAMPLES = 8
"""The exact Fisher matrix of fewer samples is refused: it would say little of the data."""
ROWS = 256
"""Rows of the exact Fisher matrix that are laid out at once."""


@dataclass(frozen=True)
class Rows:
    """What gradients are collected from: a loss and its batches, (inputs, s) for ⟨s, f⟩, so many rows, and notes.

    The exact Fisher matrix has a row for each output of a sample, all others have one.
    """

    batch_loss: BatchLoss
    batches: Iterator[Batch]
    count: int
    notes: tuple[str, ...] = ()
    per_sample: int = 1


def relabel(
    fisher: str, batch_loss: BatchLoss, loss: LossLike, batches: Iterator[Batch], rows: int, generator: torch.Generator
) -> Rows:
    """Turn batches (inputs, targets) into those of the "sampled" or the "exact" Fisher matrix; "empirical" they are.

    Of the targets only one thing is used: which places of a sequence the loss leaves out.
    """
    if isinstance(loss, Match):
        return _matched(fisher, batch_loss, loss, batches, rows, generator)
    if fisher == "empirical":
        return Rows(batch_loss, batches, rows)
    prediction, model = prediction_of(loss), batch_loss.model
    pulled = BatchLoss(model, _pull)
    if fisher == "sampled":
        return Rows(pulled, _drawn(prediction, model, batches, generator), rows)
    first = next(batches, None)
    if first is None:  # collecting says that the data is empty
        return Rows(pulled, iter(()), rows)
    size = _outputs(prediction, model, first[0])[0].numel()
    samples = rows // size
    if samples < FEWEST_SAMPLES:
        raise BrainsurgeonError(
            f"the exact Fisher matrix takes a row for each of a sample's {size} outputs, so num_gradients={rows} is "
            f"{samples} samples, and fewer than {FEWEST_SAMPLES} say little: give num_gradients="
            f'{FEWEST_SAMPLES * size} or more, or fisher="sampled", which takes one row a sample'
        )
    note = f"exact Fisher matrix: {samples * size} rows are {samples} samples, a row for each of {size} outputs"
    every = _every(prediction, model, itertools.chain([first], batches), samples, size)
    return Rows(pulled, every, samples * size, (note,), size)


def _matched(
    fisher: str, batch_loss: BatchLoss, loss: Match, batches: Iterator[Batch], rows: int, generator: torch.Generator
) -> Rows:
    """Return the rows of the distance from the dense outputs, which has no labels: they are drawn."""
    if fisher == "exact":
        raise BrainsurgeonError('with loss="match" outputs are drawn around the dense ones: take fisher="sampled"')
    note = "the Fisher matrix is of outputs drawn around the dense ones: there are no labels"
    notes = (note,) if fisher == "empirical" else ()
    return Rows(loss.pulled(batch_loss.model), loss.drawn(batches, generator), rows, notes)


def _pull(output: Tensor, direction: Tensor) -> Tensor:
    """⟨s, f⟩, over a group of B samples divided by √B."""
    return (output * direction).sum() / output.shape[0] ** 0.5


def _drawn(
    prediction: Prediction, model: nn.Module, batches: Iterator[Batch], generator: torch.Generator
) -> Iterator[Batch]:
    """Yield every sample once, with the slope at labels drawn from the model's own prediction."""
    for inputs, targets in batches:
        outputs = _outputs(prediction, model, inputs)
        wide = _widened(outputs)
        slope = prediction.draw(wide, generator) * prediction.share(wide, targets)
        yield inputs, slope.to(outputs.dtype)


def _every(
    prediction: Prediction, model: nn.Module, batches: Iterator[Batch], samples: int, size: int
) -> Iterator[Batch]:
    """Yield the first samples as often as they have outputs, each time with another column of the square root."""
    taken = 0
    for inputs, targets in regroup(batches, max(1, ROWS // size)):
        outputs = _outputs(prediction, model, inputs)
        if outputs[0].numel() != size:
            raise BrainsurgeonError(
                f"the exact Fisher matrix needs samples with equally many outputs, got {size} and "
                f'{outputs[0].numel()}: take fisher="sampled"'
            )
        wide = _widened(outputs)
        columns = prediction.root(wide) * (size**0.5 * prediction.share(wide, targets)).unsqueeze(1)
        repeated = map_tensors(lambda t: t.unsqueeze(1).expand(-1, size, *t.shape[1:]).flatten(0, 1), inputs)
        yield from regroup([(repeated, columns.flatten(0, 1).to(outputs.dtype))], ROWS)
        taken += batch_size(inputs)
        if taken >= samples:
            return


def _outputs(prediction: Prediction, model: nn.Module, inputs: Any) -> Tensor:
    with torch.no_grad():
        outputs = call(model, inputs)
    if not isinstance(outputs, Tensor) or outputs.dim() < 1 + (prediction.kind == CLASSES):
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        wanted = "samples × classes (× places)" if prediction.kind == CLASSES else "one tensor, samples × …"
        raise BrainsurgeonError(f'to draw labels, the outputs must be {wanted}, got {got}; take fisher="empirical"')
    return outputs


def _widened(outputs: Tensor) -> Tensor:
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))
