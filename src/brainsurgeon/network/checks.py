"""What is checked of the loss: that it is finite on every sample that is used, the same each time, and of one sample.

One bad sample makes every candidate's loss infinite, and nothing is compared any more; so the sample is looked for and
named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import BatchLoss, OutputLoss, call
from brainsurgeon.samples.batches import Batch, batch_size, concatenate, cut, moved, tensors_of
from brainsurgeon.samples.where import where

DETACHED = "the loss has no gradient: it is detached from the model's outputs"
PAIRS = 4
"""Pairs of samples on which a loss is asked whether it couples them."""
COUPLED = 0.02
"""A loss of two samples that is so far outside of what it is for each of them couples them; rounding does less."""
REMEDY = (
    "take gradients of groups (gradient_batch=32), or give a loss(model, batch) of batches whose every sample holds a "
    "whole group"
)


class BadSampleError(BrainsurgeonError):
    """A sample whose loss or gradient is NaN or infinite."""

    def __init__(self, message: str, sample: Batch, number: int):
        super().__init__(message)
        self.sample, self.number = sample, number

    def located(self, *data: Any) -> BrainsurgeonError:
        """Return the error with the place of the sample in the user's data, where it is found there."""
        place = next(filter(None, (where(part, self.sample) for part in data)), "")
        return BrainsurgeonError(f"{self}; it is {place}" if place else str(self))


def check_loss(batch_loss: BatchLoss, batch: Batch) -> None:
    """Evaluate the loss twice: it must be finite and the same, or no curvature can be had from it."""
    with torch.no_grad(), in_words(batch_loss.model, batch, "the first batch"):
        first, second = batch_loss(batch), batch_loss(batch)
    if not bool(torch.isfinite(first)):
        for name, parameter in batch_loss.model.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise BrainsurgeonError(f"parameter {name!r} holds NaN or infinite values: the model cannot be pruned")
        check_samples(batch_loss, batch)
        raise BrainsurgeonError(
            f"the loss of the model on the first batch is {float(first)}: check the data (normalisation, labels in "
            "range) and that the checkpoint was loaded"
        )
    if not torch.allclose(first, second, rtol=1e-5, atol=1e-7):
        raise BrainsurgeonError(
            f"the loss is not deterministic: the same batch gave {float(first):.6g}, then {float(second):.6g}. "
            "The model is in eval mode, so look for functional dropout or random layers in its forward pass"
        )


def check_attached(parts: OutputLoss | None, model: nn.Module, batch: Batch) -> None:
    """Refuse a loss of outputs that no gradient comes from; one that is a distance from the dense ones has its own."""
    if parts is None or parts.own is not None:
        return
    with torch.no_grad():
        outputs = parts.outputs(model, batch)
    if isinstance(outputs, Tensor) and outputs.is_floating_point():
        with torch.enable_grad():
            if not parts.loss(outputs.detach().requires_grad_(), batch).requires_grad:
                raise BrainsurgeonError(DETACHED)


@contextmanager
def in_words(model: nn.Module, batch: Batch, which: str = "a batch") -> Iterator[None]:
    """Tell a failure of a user's model or loss on a batch in the user's terms."""
    try:
        yield
    except BrainsurgeonError:
        raise
    except Exception as error:  # a user's model and loss may raise anything
        raise BrainsurgeonError(_failure(error, model, batch, which)) from error


def check_samples(batch_loss: BatchLoss, batch: Batch, start: int = 0, what: str = "the samples") -> None:
    """Refuse a batch that holds a sample whose loss is not finite; `start` is the number of its first sample."""
    with torch.no_grad():
        for k in range(batch_size(batch)):
            sample = cut(batch, slice(k, k + 1))
            try:
                value = float(batch_loss(sample))
            except Exception:  # a model may take no single sample: then none can be named
                return
            if not math.isfinite(value):
                raise bad_sample(f"the loss is {value}", sample, start + k, what)


def check_suspects(batch_loss: BatchLoss, batches: Iterable[Batch], device: torch.device | None = None) -> None:
    """Refuse samples that hold NaN or infinite numbers and have no finite loss: what only holds them may be meant.

    For methods that ask no sample for its own loss; data without such numbers costs one read. They are looked at
    on the device, or where the model is.
    """
    device, start = device or next(batch_loss.model.parameters()).device, 0
    for batch in batches:
        for k in _suspects(batch):
            check_samples(batch_loss, moved(cut(batch, slice(k, k + 1)), device), start + k)
        start += batch_size(batch)


def _suspects(batch: Batch) -> list[int]:
    found: set[int] = set()
    for tensor in tensors_of(batch):
        if tensor.is_floating_point() and tensor.numel() and not bool(torch.isfinite(tensor.sum())):
            found.update((~torch.isfinite(tensor)).reshape(len(tensor), -1).any(1).nonzero().squeeze(1).tolist())
    return sorted(found)


def bad_sample(problem: str, sample: Batch, number: int, what: str = "the samples") -> BadSampleError:
    """Return the error that names a sample, with what is odd about it."""
    return BadSampleError(
        f"{problem} at sample {number} of {what} (counted from 0, as they were read): {_oddity(sample)}", sample, number
    )


def _oddity(sample: Batch) -> str:
    for tensor in tensors_of(sample):
        bad = int((~torch.isfinite(tensor)).sum()) if tensor.is_floating_point() else 0
        if bad:
            return f"{bad} of its {tensor.numel()} numbers are NaN or infinite. Mend it, or leave it out"
    return (
        "its own numbers are finite, so look at its label (in range?), its scale, and for a logarithm, root or "
        "division at 0 in the model or the loss; mend it, or leave it out"
    )


def check_separate(batch_loss: BatchLoss, batch: Batch, group: int | None) -> tuple[str, ...]:
    """Note a loss that couples the samples of a batch; refuse it where gradients are of single samples (`group` 1).

    Without a `group` the method chooses it, and only a loss that a single sample does not have is refused; with 0 none
    is, because batches are taken whole.
    """
    found = coupling(batch_loss, batch)
    if not found:
        return ()
    check_loss(batch_loss, batch)  # a loss that is another each time looks coupled too
    if "sum over samples" in found:
        return (f"the loss is no mean: {found}; give reduction='mean', or batches of other sizes weigh otherwise",)
    told = f"the loss couples the samples of a batch: {found}{_stretched(batch_loss.model, batch)}"
    if group == 1 or (group is None and "single sample" in found):
        raise BrainsurgeonError(f"{told}. Gradients of single samples say nothing of it: {REMEDY}")
    return (f"{told}, so the result depends on which of them come together",)


@torch.no_grad()
def _stretched(model: nn.Module, batch: Batch) -> str:
    """Say where a loss of differences would compare each output with each target."""
    if not isinstance(batch, list | tuple) or len(batch) != 2 or not isinstance(batch[1], Tensor):
        return ""
    try:
        found = call(model, batch[0])
    except Exception:  # a loss(model, batch) may call its model in another way
        return ""
    if not isinstance(found, Tensor) or found.dim() != 2 or found.shape[1] != 1 or batch[1].dim() != 1:
        return ""
    shapes = f"{found.shape[0]}×1 and the targets {len(batch[1])}"
    return f" (the outputs are {shapes}, so each may be compared with each: reshape one, or give the loss by its name)"


def coupling(batch_loss: BatchLoss, batch: Batch) -> str:
    """Say how a loss couples the samples of a batch (contrastive, by batch statistics); empty where it does not.

    A mean, weighted or not, of two samples' losses lies between them. One that lies outside, or is another for a
    sample beside itself, depends on which samples come together. Where each output is compared with each target the
    value often lies between them too: there it must be their plain mean.
    """
    weighted = not _stretched(batch_loss.model, batch)
    with torch.no_grad():
        for k in range(0, min(2 * PAIRS, batch_size(batch) - 1), 2):
            single, other = cut(batch, slice(k, k + 1)), cut(batch, slice(k + 1, k + 2))
            try:
                alone = [batch_loss(single), batch_loss(other)]
            except BrainsurgeonError:
                raise
            except Exception as error:  # batch normalisation, above all, refuses a single sample
                return f"it cannot be had of a single sample ({type(error).__name__}: {first_line(error)})"
            pair, twins = (batch_loss(concatenate([single, one])) for one in (other, single))
            if found := _coupled([float(v) for v in alone], float(pair), float(twins), weighted):
                return found
    return ""


def _coupled(alone: list[float], pair: float, twins: float, weighted: bool) -> str:
    room = COUPLED * max(abs(value) for value in (*alone, pair, twins))
    if not all(map(math.isfinite, (*alone, pair, twins))) or room == 0:
        return ""
    between = min(alone) - room <= pair <= max(alone) + room if weighted else abs(pair - sum(alone) / 2) <= room
    if between and abs(twins - alone[0]) <= room:
        return ""
    if abs(pair - sum(alone)) <= room and abs(twins - 2 * alone[0]) <= room:
        return f"it is the sum over samples ({pair:.4g} for two of {alone[0]:.4g} and {alone[1]:.4g}), not their mean"
    return f"two samples of {alone[0]:.4g} and {alone[1]:.4g} have {pair:.4g} together"


def _failure(error: Exception, model: nn.Module, batch: Batch, which: str) -> str:
    """Tell a failure in the user's terms: what the model got, and what its weights are."""
    got = ", ".join(_described(tensor) for tensor in tensors_of(batch)[:4])
    types = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()})
    text = (
        f"the model and its loss failed on {which} ({type(error).__name__}: {first_line(error)}). The batch "
        f"holds {got}; the model's parameters are {', '.join(types)}"
    )
    floating = {str(t.dtype).removeprefix("torch.") for t in tensors_of(batch) if t.is_floating_point()}
    if len(types) == 1 and floating - set(types):
        text += f": convert the data (tensor.to(torch.{types[0]})), or the model (model.to(torch.{min(floating)}))"
    return text


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {'×'.join(map(str, tensor.shape)) or 'of no dimension'}"


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return str(error).strip().partition("\n")[0] or "no message"
