"""Whether the parts of a forward pass, one after the other, give what the whole model gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.network.buffers import same_numbers
from brainsurgeon.network.held import passing
from brainsurgeon.network.match import leaves
from brainsurgeon.network.places import pieces_of
from brainsurgeon.network.streaming import REST, Stream, loss_sum
from brainsurgeon.samples.batches import batch_size

APART = 1e-3
"""How far outputs of the parts may be from those of the whole model, relative to the largest."""


def parts_agree(stream: Stream) -> bool:
    """Say whether the parts, one after the other, give the outputs and the loss that the whole model gives.

    What a chain hands to the rest of the model beside its last hidden state is not seen when it is found. The loss
    alone would not tell where the network is so sure of a sample that it is nearly zero.
    """
    with passing(stream.model, stream.device), torch.no_grad(), _outputs(stream.model) as expected:
        whole = sum(float(stream.call(batch)) * batch_size(batch) for batch in stream.batches)
    whole /= sum(map(batch_size, stream.batches))
    try:
        with _outputs(stream.model) as found:
            total, samples = loss_sum(stream)
    except Exception:  # another network's code, given other tensors than its own
        return False
    pieces = [pieces_of(batch, stream.places) for batch in stream.batches]
    if stream.places is not None and len(expected) == len(pieces):
        expected = [_piece(out, piece) for out, some in zip(expected, pieces, strict=True) for piece, _ in some]
    alike = len(expected) == len(found) and all(map(_alike, expected, found))
    return alike and math.isclose(whole, total / samples, rel_tol=1e-4, abs_tol=1e-6)


@contextmanager
def _outputs(model: nn.Module) -> Iterator[list[list[Tensor]]]:
    """Give the tensors of real numbers that the model returns, call by call, for a while."""
    found: list[list[Tensor]] = []

    def note(_: nn.Module, __: Any, output: Any) -> None:
        found.append([leaf.detach().to(REST) for _, leaf in leaves(output)])  # a device has other work to hold

    hook = model.register_forward_hook(note)
    try:
        yield found
    finally:
        hook.remove()


def _piece(outputs: list[Tensor], piece: slice | None) -> list[Tensor]:
    return [output if piece is None or output.dim() < 2 else output[:, piece] for output in outputs]


def _alike(ones: list[Tensor], others: list[Tensor]) -> bool:
    """Say whether a call has given the same numbers, to rounding; tensors of other sizes (caches) tell nothing."""
    for one, other in zip(ones, others, strict=False):
        if one.shape != other.shape or one.dtype != other.dtype:
            continue
        if not is_near(other, one, max(APART, 8 * torch.finfo(one.dtype).eps)):
            return False
    return True


def is_near(found: Tensor, expected: Tensor, tolerance: float, least: float = 0.0) -> bool:
    """Say whether two tensors differ by no more than a share of the largest number expected, or of `least`.

    What is infinite or no number must be the same: an output may be infinite where a move is not allowed.
    """
    finite = found.isfinite() & expected.isfinite()
    if not same_numbers(found[~finite], expected[~finite]):
        return False
    scale = float(expected[finite].abs().max()) if finite.any() else 0.0
    return bool(((found - expected)[finite].abs() <= tolerance * max(scale, least)).all())
