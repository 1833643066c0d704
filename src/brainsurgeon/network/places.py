"""Sequences of tokens in pieces, for what comes behind the blocks: the scores of a whole one are larger than a block.

The final norm and the head look at one place at a time. So a piece of a sequence, with its piece of the hidden state,
has the scores that it has within the whole; neighbouring pieces share one place, because the last of each predicts
nothing. Whether that is so is not taken for granted: `parts_agree` compares outputs and losses.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from brainsurgeon.network.loss import NEXT_TOKEN, LossLike, token_logits
from brainsurgeon.samples.batches import Batch, map_tensors, tensors_of

SCORES_BYTES = 1 << 26
"""Of scores in float32 that are there at once; a constant, so that numbers never depend on free memory."""


def places_at_once(loss: LossLike, model: nn.Module, batch: Batch) -> int | None:
    """Return how many places of a sequence may go through the head of a model at once; None: all of them.

    The model is asked about two tokens, on the device of the batch.
    """
    if loss != NEXT_TOKEN:
        return None
    lengths = {tensor.shape[1] if tensor.dim() > 1 else 0 for tensor in tensors_of(batch)}
    if len(lengths) != 1 or max(lengths) < 2:
        return None
    try:
        with torch.no_grad():
            scores = token_logits(model, map_tensors(lambda tensor: tensor[:1, :2], batch))
    except Exception:  # another network's code, given fewer tokens than it may ask for
        return None
    places = max(1, SCORES_BYTES // (4 * scores.shape[-1]))
    return places if places < max(lengths) - 1 else None


def pieces_of(batch: Batch, places: int | None) -> list[tuple[slice | None, float]]:
    """Return the pieces of a batch's sequences, and each one's share of the mean loss."""
    if places is None:
        return [(None, 1.0)]
    last = tensors_of(batch)[0].shape[1] - 1
    cuts = pairwise([*range(0, last, places), last])
    return [(slice(start, end + 1), (end - start) / last) for start, end in cuts]
