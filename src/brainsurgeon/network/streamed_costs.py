"""The costs of all rows with one part of the network at work at a time: the way back is taken block by block.

The hidden states before each block are kept on the way forward. On the way back a block is run once more from its own,
with gradients, and hands the slope at what it was given to the block before it. A device holds one block and what it
computes for one batch, never the whole network's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.distributed import gather_rows, world_size
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.output_costs import backward, mean_costs, slopes_added
from brainsurgeon.network.partition import first_tensor
from brainsurgeon.network.places import pieces_of
from brainsurgeon.network.streaming import REST, Stream, state_of
from brainsurgeon.samples.batches import batch_size

STATE_BYTES = 1 << 32
"""Hidden states of so many bytes are kept; more batches take their turn after them."""


class Entangled(Exception):  # noqa: N818 (no error: another way is taken)
    """Layers before the chain reach the loss past it, too: their slopes need the whole network at once."""


def streamed_costs(stream: Stream) -> tuple[dict[str, Tensor], float]:
    """Return what `output_costs` does, and the sum of the losses of this rank's samples.

    No parameter may need a gradient. A network that is no chain is `Entangled`.
    """
    if not stream.chain.names:
        raise Entangled
    totals: dict[str, Tensor] = {}
    total = 0.0
    for some in _pieces(stream):
        total += _Way(some, totals).there_and_back()
    return mean_costs(stream.layers, totals, sum(map(batch_size, stream.batches))), total


def _pieces(stream: Stream) -> list[Stream]:
    """Cut the batches so that the hidden states of each piece before all blocks can be kept.

    Every rank has as many pieces: the shards of a block are gathered by all of them at once.
    """
    count = len(stream.batches)
    with stream.up_to_chain() as run, torch.no_grad():
        hidden, _ = first_tensor(*run(0)[0]) if count else (None, [])
    size = STATE_BYTES // (hidden.nbytes * len(stream.chain.names)) if hidden is not None else 1
    needed = gather_rows(torch.tensor([[-(-count // max(1, size)), count]]), [1] * world_size())
    pieces = max(1, min(int(needed[:, 0].max()), int(needed[:, 1].min())))
    cuts = [number * count // pieces for number in range(pieces + 1)]
    return [replace(stream, batches=stream.batches[start:end]) for start, end in pairwise(cuts) if end > start]


class _Way:
    """The way of some batches to the loss and back."""

    def __init__(self, stream: Stream, totals: dict[str, Tensor]) -> None:
        self.stream, self.totals = stream, totals
        self.sizes = [batch_size(batch) for batch in stream.batches]
        self.slopes: list[Tensor] = []

    def there_and_back(self) -> float:
        """Add up the squared slopes of all layers; return the sum of the losses."""
        before: list[list[Tensor]] = []
        for step in self.stream.steps()[:-1]:
            for _ in step(True):
                pass
            before.append(list(self.stream.hidden))
        total = self._tail(before.pop())
        for number in reversed(range(len(before))):
            self._block(number, before.pop())
        if self.stream.outside(head=True):
            self._head()
        return total

    def _tail(self, states: Sequence[Tensor]) -> float:
        total, past = 0.0, dict[str, Tensor]()
        head, tail = self.stream.outside(head=True), self.stream.outside(head=False)
        with self.stream.passed_over() as run:
            for number, size in enumerate(self.sizes):
                pulse()
                state = _leaf(states[number], self.stream.device)
                for piece, share in pieces_of(self.stream.batches[number], self.stream.places):
                    with slopes_added(head, past, size), slopes_added(tail, self.totals, size):
                        value = run(number, state, piece)
                        backward(value * share)
                    total += share * float(value.detach()) * size
                self.slopes.append(_slope(state))
                if any(bool(squares.any()) for squares in past.values()):
                    raise Entangled
        return total

    def _block(self, number: int, states: Sequence[Tensor]) -> None:
        own = [layer for layer in self.stream.layers if self.stream.chain.part_of(layer.name) == number]
        with self.stream.block(number) as run:
            for batch, size in enumerate(self.sizes):
                pulse()
                state = _leaf(states[batch], self.stream.device)
                with slopes_added(own, self.totals, size):
                    found = state_of(run(batch, state.clone()))  # the module may write into what it is given
                    torch.autograd.backward(found, self.slopes[batch].to(found.device))
                self.slopes[batch] = _slope(state)

    def _head(self) -> None:
        with self.stream.up_to_chain() as run:
            for number, size in enumerate(self.sizes):
                pulse()
                with slopes_added(self.stream.outside(head=True), self.totals, size):
                    given = run(number)
                    hidden, _ = first_tensor(*given[0])
                    if any(_needs_slopes(first_tensor(*each)[1]) for each in given):
                        raise Entangled
                    if hidden is not None and hidden.requires_grad:
                        torch.autograd.backward(hidden, self.slopes[number].to(hidden.device))


def _leaf(state: Tensor, device: torch.device) -> Tensor:
    return state.to(device).detach().requires_grad_()


def _slope(state: Tensor) -> Tensor:
    slope = torch.zeros_like(state) if state.grad is None else state.grad
    return slope.to(REST)


def _needs_slopes(value: Any) -> bool:
    """Say whether arguments depend on what gradients are taken of."""
    if isinstance(value, Tensor):
        return value.requires_grad
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, tuple | list) and any(map(_needs_slopes, value))
