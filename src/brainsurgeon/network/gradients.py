"""The K×N matrix G of gradients: one row per sample, or per mini-batch.

The floor is one forward and backward pass a sample and one write of K·N numbers; rows come in batches from
`torch.func`, straight into the one matrix that is ever made.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.samples.batches import Batch, batch_size, cut, map_tensors, regroup

log = logging.getLogger(__name__)

CHUNK_BYTES = {"cpu": 48 << 20, "cuda": 1 << 30}
"""Rows taken at once fill at most this much; on a CPU the chunk should stay near its caches."""
MOST_ROWS = 256

Parameters = dict[str, Tensor]
Rows = Callable[[Parameters, Batch], Parameters]
"""From weights and C groups of samples to the C gradients, by parameter name."""


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
) -> Gradients:
    """Collect K = `num_gradients` rows; row k is the gradient of the mean loss of `gradient_batch` samples.

    Fewer rows come back where the data ends early. The model must be in eval mode.
    """
    if not dtype.is_floating_point:
        raise BrainsurgeonError(f"gradients are stored in a floating-point type such as bfloat16, got {dtype}")
    device = batch_loss.model.get_parameter(weights.names[0]).device
    columns = torch.empty(weights.size, num_gradients, dtype=dtype, device=device)
    notes: list[str] = []
    filled = 0
    for rows in gradient_rows(batch_loss, weights, batches, num_gradients, gradient_batch, notify, notes):
        count = _write(columns[:, filled:], rows, weights, filled)
        filled += count
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
            values = rows[f"model.{layer.name}"].flatten(1)
            values = values.to(torch.promote_types(values.dtype, torch.float32))  # squares of float16 vanish
            total[layer.columns] += values.sum(0)
            squares[layer.columns] += values.square().sum(0)
        filled += values.shape[0]
    if not bool(torch.isfinite(squares).all()):
        bad = next(la.name for la in weights.layers if not bool(torch.isfinite(squares[la.columns]).all()))
        raise BrainsurgeonError(f"the gradient of {bad!r} is NaN or infinite: check the samples and the loss")
    return total / filled, squares / filled, filled, tuple(notes)


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
    parameters = {f"model.{name}": batch_loss.model.get_parameter(name).detach() for name in weights.names}
    device = next(iter(parameters.values())).device
    pieces = regroup(batches, _chunk_rows(weights.size, device) * gradient_batch)
    chunks = filter(None, (_split_groups(piece, gradient_batch) for piece in pieces))
    first = next(chunks, None)
    if first is None:
        raise BrainsurgeonError(
            f"the data gave no gradient: it is empty, or holds fewer than gradient_batch={gradient_batch} samples"
        )
    rows, found = choose_rows(batch_loss, parameters, first)
    notes += found
    filled = 0
    for groups in itertools.chain([first], chunks):
        groups = cut(groups, slice(num_gradients - filled))
        yield _in_halves(rows, parameters, groups)
        filled += batch_size(groups)
        notify(Event("gradients", filled, num_gradients))
        if filled == num_gradients:
            break


def choose_rows(batch_loss: BatchLoss, parameters: Parameters, groups: Batch) -> tuple[Rows, tuple[str, ...]]:
    """Choose batched gradients where `torch.func` can transform the model and agrees with autograd, else a loop."""

    def loss(parameters: Parameters, group: Batch) -> Tensor:
        return functional_call(batch_loss, parameters, (group,))

    def one_by_one(parameters: Parameters, groups: Batch) -> Parameters:
        rows = [_autograd(loss, parameters, cut(groups, k)) for k in range(batch_size(groups))]
        return {name: torch.stack([row[name] for row in rows]) for name in parameters}

    batched = vmap(grad(loss), in_dims=(None, 0))
    probe = cut(groups, slice(2))
    with _full_precision():
        expected = one_by_one(parameters, probe)
    try:
        with _full_precision():
            found = batched(parameters, probe)
    except BrainsurgeonError:
        raise
    except Exception as problem:  # torch.func raises all kinds for what it cannot transform
        reason = str(problem).strip().split("\n")[0][:200]
    else:
        if all(_agree(found[name], expected[name]) for name in parameters):
            return batched, ()
        reason = "batched gradients differ from single ones"
    note = f"gradients are taken one by one, which is slower: torch.func cannot batch this model ({reason})"
    log.warning(note)
    return one_by_one, (note,)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Let no GPU kernel round float32 operands to TF32: in deep networks that alone changes gradients by a tenth."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = False
        yield
    finally:
        for backend, allowed in zip(backends, before, strict=True):
            backend.allow_tf32 = allowed


def _agree(found: Tensor, expected: Tensor) -> bool:
    """Compare by norm: kernels of reduced precision differ by per cents in deep networks, a wrong gradient by more."""
    tolerance = max(0.1, 8 * torch.finfo(expected.dtype).eps)  # half precision rounds more
    found, expected = found.double(), expected.double()
    return bool((found - expected).norm() <= tolerance * expected.norm() + 1e-6)


def _autograd(loss: Callable[[Parameters, Batch], Tensor], parameters: Parameters, group: Batch) -> Parameters:
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad():
        value = loss(leaves, group)
        # A sample may take a way through the model that meets no prunable weight at all.
        if not value.requires_grad:
            return {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(value) if gradient is None else gradient
        for (name, value), gradient in zip(parameters.items(), gradients, strict=True)
    }


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


def _chunk_rows(size: int, device: torch.device) -> int:
    fitting = CHUNK_BYTES.get(device.type, 48 << 20) // (4 * size)
    return min(MOST_ROWS, 1 << max(fitting, 1).bit_length() - 1)


def _write(block: Tensor, gradients: Parameters, weights: PrunableWeights, first: int) -> int:
    count = next(iter(gradients.values())).shape[0]
    for layer in weights.layers:
        values = gradients[f"model.{layer.name}"].reshape(count, layer.size)
        if not bool(torch.isfinite(values.sum())):  # a sum: one read, nothing allocated
            raise BrainsurgeonError(
                f"the gradient of {layer.name!r} is NaN or infinite for one of rows {first} to {first + count - 1}: "
                "check that sample and the loss"
            )
        block[layer.columns, :count] = values.T
    return count
