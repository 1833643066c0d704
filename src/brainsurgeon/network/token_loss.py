"""The cross entropy of tokens in pieces: beside the logits, and their gradient, no more than a piece of them is held.

The scores of a sequence of tokens are its length times the vocabulary, far more than all else that a block computes of
it. PyTorch's own loss holds four more arrays of that size on the way there and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

PIECE_BYTES = 1 << 24
"""Of logits in float32 that are worked on at once; a constant, so that numbers never depend on free memory."""


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the mean cross entropy of each token given those before it: `logits` are B x T x V, `tokens` B x T."""
    if _bytes(logits) <= PIECE_BYTES:
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
    found: Tensor = _InPieces.apply(logits, tokens)
    return found


class _InPieces(torch.autograd.Function):
    """Logits → mean loss; on the way back softmax − e_token is written into one array, piece by piece."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, tokens: Tensor) -> Tensor:
        total = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
        for some, places in _pieces(logits):
            target = tokens[some, places.start + 1 : places.stop + 1].flatten()
            total = total + F.cross_entropy(_wide(logits[some, places]), target, reduction="sum")
        return total / tokens[:, 1:].numel()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        logits, tokens = ctx.saved_tensors
        found = torch.zeros_like(logits)
        share = slope / tokens[:, 1:].numel()
        for some, places in _pieces(logits):
            target = tokens[some, places.start + 1 : places.stop + 1].reshape(-1, 1)
            values = _wide(logits[some, places]).softmax(-1)
            values.scatter_(-1, target, values.gather(-1, target) - 1).mul_(share)
            found[some, places] = values.view(logits[some, places].shape).to(found.dtype)
        return found, None


def _wide(logits: Tensor) -> Tensor:
    """Return scores as rows, in at least float32."""
    return logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))


def _pieces(logits: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield samples and places of each piece: several sequences, or a part of one; the last place predicts nothing."""
    samples, places = logits.shape[0], logits.shape[1] - 1
    row = _bytes(logits[:1, :1])
    together = max(1, PIECE_BYTES // (places * row))
    step = min(places, max(1, PIECE_BYTES // row))
    for first in range(0, samples, together):
        for place in range(0, places, step):
            yield slice(first, min(first + together, samples)), slice(place, min(place + step, places))


def _bytes(logits: Tensor) -> int:
    return 4 * logits.numel()
