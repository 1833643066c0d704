"""The K×N matrix G of gradients: one row per sample, or per mini-batch.

The floor is one forward and backward pass a sample and one write of K·N numbers; rows come in batches from
`torch.func`, straight into the one matrix that is ever made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.autograd import loss_gradients
from brainsurgeon.network.checks import bad_sample, check_samples
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.rows import PREFIX, Parameters, Rows, choose_rows
from brainsurgeon.network.saved import kept_by
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.samples.batches import Batch, batch_size, cut, map_tensors, regroup

CHUNK_BYTES = {"cpu": 48 << 20, "cuda": 1 << 30}
"""Rows taken at once fill at most this much; on a CPU the chunk should stay near its caches."""
FRESH_BYTES = 256 << 20
"""Memory that is written to between two looks at the clock: the first write to much of it takes seconds."""
PASS_BYTES = {"cpu": 2 << 30, "cuda": 8 << 30}
"""What the passes of rows that are taken at once may hold: layers with few weights may have large outputs."""
PASSED = 3
"""Copies of what a forward pass keeps that there are on the way back, with the batched rules of `torch.func`."""
MOST_ROWS = 256
PROBED = 32
"""Samples at once whose gradient is looked at before any work."""
ALL_ZERO = (
    "the gradients of all {} samples are exactly zero, so nothing can be told from them: the loss is detached from the "
    "weights (a detach, .item() or numpy on the way, integers, a graph that is not kept), it compares the samples of a "
    "batch with one another (then give gradient_batch=32), or the model is saturated"
)


@dataclass(frozen=True)
class Gradients:
    """Gᵀ, with a note for the user where the usual way could not be taken.

    The gradients of one weight lie together (N rows of K numbers), so that a search can pick up a few weights, and
    a block of weights is a plain slice.
    """

    columns: Tensor
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """K."""
        return self.columns.shape[1]

    def mean(self) -> Tensor:
        """Return the mean of the rows, an N-vector in float64."""
        return self.columns.mean(1, dtype=torch.promote_types(self.columns.dtype, torch.float32)).double()


def collect_gradients(
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Iterable[Batch],
    num_gradients: int,
    gradient_batch: int = 1,
    dtype: torch.dtype = torch.float32,
    notify: Callback = silent,
    may_vanish: bool = False,
) -> Gradients:
    """Collect K = `num_gradients` rows; row k is the gradient of the mean loss of `gradient_batch` samples.

    Fewer rows come back where the data ends early. The model must be in eval mode. Rows that are all exactly zero are
    refused unless they `may_vanish`, as they do in a network that is all but pruned away.
    """
    if not dtype.is_floating_point:
        raise BrainsurgeonError(f"gradients are stored in a floating-point type such as bfloat16, got {dtype}")
    device = batch_loss.model.get_parameter(weights.names[0]).device
    columns = torch.empty(weights.size, num_gradients, dtype=dtype, device=device)
    notes: list[str] = []
    filled, largest = 0, 0.0
    for rows in gradient_rows(batch_loss, weights, batches, num_gradients, gradient_batch, notify, notes):
        count, size = _write(columns[:, filled:], rows, weights)
        filled, largest = filled + count, max(largest, size)
    if largest == 0.0 and not may_vanish:
        raise BrainsurgeonError(ALL_ZERO.format(filled * gradient_batch))
    return Gradients(columns[:, :filled], tuple(notes))


def mean_squares(
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Iterable[Batch],
    num_gradients: int,
    gradient_batch: int = 1,
    notify: Callback = silent,
) -> tuple[Tensor, Tensor, int, tuple[str, ...]]:
    """Return the mean and the mean square of K gradient rows, their number and notes, storing none of the rows."""
    device = batch_loss.model.get_parameter(weights.names[0]).device
    total = torch.zeros(weights.size, dtype=torch.float64, device=device)
    squares = torch.zeros_like(total)
    notes: list[str] = []
    filled = 0
    for rows in gradient_rows(batch_loss, weights, batches, num_gradients, gradient_batch, notify, notes):
        for layer in weights.layers:
            values = rows[PREFIX + layer.name].flatten(1)
            values = values.to(torch.promote_types(values.dtype, torch.float32))  # squares of float16 vanish
            total[layer.columns] += values.sum(0)
            squares[layer.columns] += values.square().sum(0)
        filled += values.shape[0]
    return total / filled, squares / filled, filled, tuple(notes)


def check_slope(batch_loss: BatchLoss, weights: PrunableWeights, batches: Iterable[Batch]) -> None:
    """Refuse a loss whose gradient is exactly zero on all of some samples."""
    seen = 0
    for batch in regroup(batches, PROBED):
        if any(bool(part.any()) for part in loss_gradients(batch_loss, weights.names, batch).values()):
            return
        seen += batch_size(batch)
    raise BrainsurgeonError(ALL_ZERO.format(seen))


def gradient_rows(
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Iterable[Batch],
    num_gradients: int,
    gradient_batch: int,
    notify: Callback,
    notes: list[str],
) -> Iterator[Parameters]:
    """Yield the rows in chunks, by parameter name."""
    parameters = {PREFIX + name: batch_loss.model.get_parameter(name).detach() for name in weights.names}
    device = next(iter(parameters.values())).device
    pieces = regroup(batches, chunk_rows(weights.size, device.type) * gradient_batch)
    split = (_split_groups(piece, gradient_batch) for piece in pieces)
    chunks = (groups for groups in split if groups is not None)
    first = next(chunks, None)
    if first is None:
        raise BrainsurgeonError(
            f"the data gave no gradient: it is empty, or holds fewer than gradient_batch={gradient_batch} samples"
        )
    rows, told = choose_rows(batch_loss, parameters, first)
    notes += told
    filled, at_once = 0, rows_at_once(kept_by(batch_loss, cut(first, 0)), device.type)
    parts = (
        cut(groups, slice(start, start + at_once))
        for groups in itertools.chain([first], chunks)
        for start in range(0, batch_size(groups), at_once)
    )
    for part in parts:
        groups = cut(part, slice(num_gradients - filled))
        found = _in_halves(rows, parameters, groups)
        _check_finite(batch_loss, found, groups, filled)
        yield found
        filled += batch_size(groups)
        notify(Event("gradients", filled, num_gradients))
        pulse()
        if filled == num_gradients:
            break


def _in_halves(rows: Rows, parameters: Parameters, groups: Batch) -> Parameters:
    """Take the rows at once or, where a GPU's memory does not allow it, by halves."""
    count = batch_size(groups)
    try:
        with torch.no_grad():  # the parameters left alone must not keep a graph alive
            return rows(parameters, groups)
    except torch.cuda.OutOfMemoryError:
        if count == 1:
            raise
    # Outside of the handler: while the error lives, so do the tensors of the frames it passed through.
    torch.cuda.empty_cache()
    halves = [cut(groups, half) for half in (slice(count // 2), slice(count // 2, None))]
    parts = [_in_halves(rows, parameters, half) for half in halves]
    return {name: torch.cat([part[name] for part in parts]) for name in parameters}


def _split_groups(batch: Batch, gradient_batch: int) -> Batch | None:
    """Cut C·g samples into C groups of g (a last, smaller group is left out)."""
    count = batch_size(batch) // gradient_batch
    if not count:
        return None
    return map_tensors(
        lambda tensor: tensor[: count * gradient_batch].reshape(count, gradient_batch, *tensor.shape[1:]), batch
    )


def chunk_rows(size: int, kind: str = "cpu") -> int:
    """Return how many gradients of so many weights are taken at once on a kind of device."""
    return min(MOST_ROWS, _power_of_two(CHUNK_BYTES.get(kind, 48 << 20) // (4 * size)))


def rows_at_once(kept: int, kind: str = "cpu") -> int:
    """Return how many gradients are taken at once where the forward pass of one keeps so many bytes."""
    return _power_of_two(PASS_BYTES.get(kind, PASS_BYTES["cpu"]) // (PASSED * max(kept, 1)))


def _power_of_two(most: int) -> int:
    return 1 << max(most, 1).bit_length() - 1


def _check_finite(batch_loss: BatchLoss, rows: Parameters, groups: Batch, filled: int) -> None:
    """Refuse rows that are not finite, with the sample that they are of; `filled` rows came before."""
    for name, values in rows.items():
        low, high = values.aminmax()  # one read, nothing allocated, and NaN is passed on
        if not bool(torch.isfinite(high - low)) and not bool(torch.isfinite(values).all()):
            bad = int((~torch.isfinite(values)).flatten(1).any(1).nonzero()[0])
            group = cut(groups, bad)
            start = (filled + bad) * batch_size(group)
            check_samples(batch_loss, group, start, "those that gradients are taken of")
            problem = f"the gradient of {name.removeprefix(PREFIX)!r} is NaN or infinite, the loss is not,"
            raise bad_sample(problem, group, start, "those that gradients are taken of")


def _write(block: Tensor, gradients: Parameters, weights: PrunableWeights) -> tuple[int, float]:
    """Store rows; return how many there are, and the largest entry."""
    count, largest = next(iter(gradients.values())).shape[0], 0.0
    step = max(1, FRESH_BYTES // max(1, block.stride(0) * block.element_size()))
    for layer in weights.layers:
        values = gradients[PREFIX + layer.name].reshape(count, layer.size)
        low, high = (float(end) for end in values.aminmax())
        largest = max(largest, -low, high)
        if largest > torch.finfo(block.dtype).max:
            raise BrainsurgeonError(
                f"gradients of {layer.name!r} reach {largest:.3g}, and {block.dtype} ends at "
                f"{torch.finfo(block.dtype).max:.3g}: give dtype=torch.bfloat16 (as small), or float32"
            )
        for part in range(layer.offset, layer.offset + layer.size, step):
            here = slice(part, min(part + step, layer.offset + layer.size))
            block[here, :count] = values[:, here.start - layer.offset : here.stop - layer.offset].T
            pulse()
    return count, largest
