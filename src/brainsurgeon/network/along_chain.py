"""What a sample takes of memory where a network is gone through block by block: one block, and the hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.network.held import passing
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.modes import evaluated, without_cache
from brainsurgeon.network.partition import find_chain
from brainsurgeon.network.places import pieces_of, places_at_once
from brainsurgeon.network.saved import saved
from brainsurgeon.network.streaming import Stream, state_of
from brainsurgeon.samples.batches import Batch, batch_size, map_tensors

PROBED = 32
"""Tokens of a sequence that show which blocks there are."""


@dataclass(frozen=True)
class AlongChain:
    """Bytes of one sample: its hidden state, what the largest block and the tail keep for the way back.

    `blocks` is the number of blocks, 0 where there is no chain; `piece` is what the tail keeps where sequences go
    through it in pieces, 0 where they do not. `failed` says why nothing could be measured.
    """

    hidden: int = 0
    block: int = 0
    tail: int = 0
    blocks: int = 0
    piece: int = 0
    failed: str = ""


def along_chain(
    batch_loss: BatchLoss, batch: Batch, layers: Sequence[str], device: torch.device, loss: LossLike = ""
) -> AlongChain:
    """Measure one batch on its way through the first block of each kind, and the tail.

    Where the `loss` lets sequences be cut, a few tokens show the chain, and the tail is that of a piece.
    """
    model, count = batch_loss.model, batch_size(batch)
    with evaluated(model), without_cache(model):
        with passing(model, device):
            places = places_at_once(loss, model, batch)
            probe = batch if places is None else map_tensors(lambda tensor: tensor[:, :PROBED], batch)
            maps = [layer.name for layer in linear_maps(model, layers)]  # no other layer is in a run's chain
            chain = find_chain(model, lambda: batch_loss(probe), maps)
        if not chain.names:
            return AlongChain()
        stream = Stream(model, batch_loss, [batch], [], chain, device)
        steps = stream.steps()
        for _ in steps[0](True):
            pass
        hidden = stream.hidden[0].to(device)  # states wait on the CPU
        kinds = [_kind(model.get_submodule(name)) for name in chain.names]
        first = [number for number, kind in enumerate(kinds) if kind not in kinds[:number]]
        largest = 0
        for number in range(len(chain.names)):
            if number > first[-1] and hidden.shape == stream.hidden[0].shape:
                break  # what follows is alike, and the tail takes a state of this shape
            with stream.block(number) as run:
                if number in first:
                    module = model.get_submodule(chain.names[number])
                    largest = max(largest, _saved(module, partial(run, 0), hidden))
                with torch.no_grad():
                    hidden = state_of(run(0, hidden.clone()))
        with stream.passed_over() as end:
            some, share = pieces_of(batch, places)[0]
            piece = _saved(model, lambda state: end(0, state, some), hidden)
    sizes = (stream.hidden[0].nbytes // count, largest // count, int(piece / share) // count)
    return AlongChain(*sizes, len(chain.names), 0 if places is None else piece // count)


def _kind(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    """Return what blocks that are alike have in common."""
    return tuple(tuple(parameter.shape) for parameter in module.parameters())


def _saved(module: nn.Module, run: Callable[[Tensor], Any], hidden: Tensor) -> int:
    """Return the bytes that a pass from a hidden state keeps for the way back, beside the weights."""
    start = hidden.detach().requires_grad_(hidden.is_floating_point())  # tokens have no gradient
    with saved(module) as seen:
        found = run(start.clone())  # a copy, which may be written into
    del found
    return sum(seen.values())
