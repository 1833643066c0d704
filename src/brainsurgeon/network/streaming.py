"""The forward pass in parts: hidden states stand before a part, move through it once, and are never computed again.

For each part of a network (its head, the modules of its chain, its tail) the moments of the inputs of its layers are
taken with one pass over the calibration batches for every group of layers that share an input, and one more pass gives
the inputs of the next part. Only the part at work lies on the device; the rest of the model stays where it is: in
memory, in files, or in shards on several devices (`held.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import sum_over_ranks
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.held import lent
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.network.partition import Chain, first_tensor
from brainsurgeon.network.parts import Part, Reached, nowhere, watching
from brainsurgeon.network.places import pieces_of
from brainsurgeon.samples.batches import Batch, batch_size, map_tensors

REST = torch.device("cpu")
"""Where hidden states wait: a device holds one part, its moments and one batch."""


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Parts = Generator[Part, None, None]


@dataclass
class Stream:
    """Calibration batches on their way through a model, part by part; a stream is gone through once.

    `call` runs the whole model on a batch; the model's outputs are not looked at. So many `places` of each sequence go
    through what is behind the chain at once (None: all of them).
    """

    model: nn.Module
    call: Callable[[Batch], Any]
    batches: list[Batch]
    layers: list[LinearMap]
    chain: Chain
    device: torch.device
    places: int | None = None
    hidden: list[Tensor] = field(default_factory=list, init=False)
    _given: list[list[Arguments]] = field(default_factory=list, init=False)  # of each batch, to each module
    _by_name: list[str | None] = field(default_factory=list, init=False)  # how a module is given its first tensor
    _in_head: set[str] = field(default_factory=set, init=False)

    def parts(self, skip: int = 0) -> Parts:
        """Yield the parts in order; going on to the next moves the hidden states through the last.

        The first `skip` parts are passed through without being yielded: a run that is resumed has done them.
        """
        if not self.chain.names:
            if not skip:
                with lent(self.model, self.model, self.device):
                    yield self._part("model", self.layers, self._whole)
            return
        for number, step in enumerate(self.steps()):
            yield from step(number < skip)

    def steps(self) -> list[Callable[[bool], Parts]]:
        """Return the head, the modules of the chain and the tail, as functions of whether they are done already."""
        blocks = [partial(self._block, number) for number in range(len(self.chain.names))]
        return [self._head, *blocks, self._tail]

    @property
    def total(self) -> int:
        """The number of parts."""
        return len(self.chain.names) + 2 if self.chain.names else 1

    def _part(
        self,
        name: str,
        layers: list[LinearMap],
        run: Callable[[int], Any],
        move: Callable[[int, Any], None] = nowhere,
        done: bool = False,
    ) -> Part:
        part = Part(name, layers, run, len(self.batches), move=move)
        if layers and not done:
            part.find_groups()
        return part

    def _whole(self, number: int) -> Any:
        return self.call(self.batches[number])

    def outside(self, head: bool) -> list[LinearMap]:
        """Return the layers outside of the chain, those that come before it or those behind; the head must have run."""
        free = [layer for layer in self.layers if self.chain.part_of(layer.name) is None]
        return [layer for layer in free if (layer.name in self._in_head) == head]

    def _head(self, done: bool) -> Parts:
        """Run the model up to the last module of the chain, which is passed over; keep what its modules are given."""
        pool: list[Tensor] = []
        with self.up_to_chain() as run, torch.no_grad():
            self._in_head = self._called_before(run)
            part = self._part("head", self.outside(head=True), run, lambda _, caught: self._keep(caught, pool), done)
            if not done:
                yield part
            part.go_on()

    @contextmanager
    def up_to_chain(self) -> Iterator[Callable[[int], list[Arguments]]]:
        """Give a way to run the model on a batch up to the chain, which returns what its modules are given."""
        caught: list[Arguments] = []

        def catch(number: int, *args: Any, **kwargs: Any) -> Any:
            caught.append((args, kwargs))
            if number + 1 == len(self.chain.names):
                raise Reached
            return self._wrapped(number, first_tensor(args, kwargs)[0], args, kwargs)

        def run(number: int) -> list[Arguments]:
            caught.clear()
            with suppress(Reached):
                self.call(self.batches[number])
            return caught

        replaced = [partial(catch, number) for number in range(len(self.chain.names))]
        with lent(self.model, self.model, self.device, self.chain.names), self._replaced(replaced):
            yield run

    def _called_before(self, run: Callable[[int], Any]) -> set[str]:
        seen: set[str] = set()
        free = [layer for layer in self.layers if self.chain.part_of(layer.name) is None]
        if free:
            with watching(free, lambda layer, *_: seen.add(layer.name)):
                run(0)
        return seen

    def _keep(self, caught: list[Arguments], pool: list[Tensor]) -> None:
        """Take the hidden states out of the arguments; what is equal for several batches or modules is kept once."""
        hidden, _ = first_tensor(*caught[0])
        assert hidden is not None  # the chain was found by this tensor
        self.hidden.append(hidden.to(REST))
        self._by_name = [None if args else next(iter(kwargs)) for args, kwargs in caught]
        rest = [(args[1:], kwargs) if args else (args, dict(list(kwargs.items())[1:])) for args, kwargs in caught]
        self._given.append([(_pooled(args, pool), _pooled(kwargs, pool)) for args, kwargs in rest])

    def _wrapped(self, number: int, hidden: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a hidden state as a module of the chain gives it, with what it hands on of its arguments."""
        extras = self.chain.extras[number]
        if extras is None:
            return hidden
        given: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
        return (hidden, *(None if slot is None else given.get(slot) for slot in extras))

    def _block(self, number: int, done: bool) -> Parts:
        own = [layer for layer in self.layers if self.chain.part_of(layer.name) == number]

        def move(batch: int, output: Any) -> None:
            self.hidden[batch] = state_of(output).to(REST)

        with self.block(number) as run, torch.no_grad():
            # A copy: the module may write into what it is given, and will be run again.
            part = self._part(
                self.chain.names[number],
                own,
                lambda batch: run(batch, self.hidden[batch].to(self.device, copy=True)),
                move,
                done,
            )
            if not done:
                yield part
            part.go_on()

    @contextmanager
    def block(self, number: int) -> Iterator[Callable[[int, Tensor], Any]]:
        """Put a module of the chain on the device, and give a way to run it on a batch whose hidden state is given."""
        module = self.model.get_submodule(self.chain.names[number])

        def run(batch: int, hidden: Tensor) -> Any:
            rest, named = self._given[batch][number]
            by_name = self._by_name[number]
            if by_name is not None:
                return module(*rest, **{by_name: hidden, **named})
            return module(hidden, *rest, **named)

        with lent(self.model, module, self.device):
            yield run

    def _tail(self, done: bool) -> Parts:
        """Run the model with its chain passed over: what is behind it is given the hidden states that were reached."""
        layers = self.outside(head=False)
        if done or not layers:
            return
        with self.passed_over() as run, torch.no_grad():
            yield self._part("tail", layers, lambda batch: run(batch, self.hidden[batch]))

    def losses(self) -> Iterator[float]:
        """Yield what `call` gives for each batch, after the hidden states have gone through all parts."""
        for _ in self.parts(skip=self.total):
            pass
        if not self.chain.names:
            with lent(self.model, self.model, self.device), torch.no_grad():
                yield from (float(self._whole(number)) for number in range(len(self.batches)))
            return
        with self.passed_over() as run, torch.no_grad():
            for number, batch in enumerate(self.batches):
                pieces = pieces_of(batch, self.places)
                yield sum(share * float(run(number, self.hidden[number], piece)) for piece, share in pieces)

    @contextmanager
    def passed_over(self) -> Iterator[Callable[..., Any]]:
        """Give a way to run the model on a batch whose chain only hands on the hidden state that is given.

        It takes the number of a batch, the state, and the piece of the sequences that is run (None: all).
        """
        current = [torch.empty(0)]

        def hand_on(number: int, *args: Any, **kwargs: Any) -> Any:
            return self._wrapped(number, current[0].to(self.device, copy=True), args, kwargs)

        def run(number: int, hidden: Tensor, piece: slice | None = None) -> Any:
            batch = self.batches[number]
            if piece is None:
                current[0] = hidden
                return self.call(batch)
            current[0] = hidden[:, piece]
            return self.call(map_tensors(lambda tensor: tensor[:, piece], batch))

        replaced = [partial(hand_on, number) for number in range(len(self.chain.names))]
        with lent(self.model, self.model, self.device, self.chain.names), self._replaced(replaced):
            yield run

    @contextmanager
    def _replaced(self, forwards: Sequence[Callable[..., Any]]) -> Iterator[None]:
        """Let the modules of the chain have other forward methods for a while."""
        modules = [self.model.get_submodule(name) for name in self.chain.names]
        own = [module.__dict__.get("forward") for module in modules]  # set on the module itself: a wrapper's
        try:
            for module, forward in zip(modules, forwards, strict=True):
                module.__dict__["forward"] = forward
            yield
        finally:
            for module, before in zip(modules, own, strict=True):
                module.__dict__.pop("forward", None)
                if before is not None:
                    module.__dict__["forward"] = before


def streamed_loss(stream: Stream) -> float:
    """Return the mean loss over the batches of all ranks, with every part on the device only while it is at work."""
    return mean_over_ranks(*(loss_sum(stream) if stream.batches else (0.0, 0)))


def mean_over_ranks(total: float, samples: int) -> float:
    """Return the mean loss from the sum over the samples of each rank; infinity where it is not finite."""
    total, count = sum_over_ranks(torch.tensor([total, samples], dtype=torch.float64)).tolist()
    return total / count if math.isfinite(total) else math.inf


def loss_sum(stream: Stream) -> tuple[float, int]:
    """Return the sum of the losses of this rank's samples, and their number."""
    total, samples = 0.0, 0
    for value, batch in zip(stream.losses(), stream.batches, strict=True):
        pulse()
        total += value * batch_size(batch)
        samples += batch_size(batch)
    return total, samples


def state_of(output: Any) -> Tensor:
    """Return the hidden state among what a module gives."""
    found: Tensor = output[0] if isinstance(output, tuple | list) else output
    return found


def _pooled(value: Any, pool: list[Tensor]) -> Any:
    """Return the same arguments with every tensor that equals one seen before replaced by that one."""
    if isinstance(value, Tensor):
        for known in pool:
            if known is value or (
                known.shape == value.shape and known.dtype == value.dtype and torch.equal(known, value)
            ):
                return known
        pool.append(value)
        return value
    if isinstance(value, dict):
        return {key: _pooled(each, pool) for key, each in value.items()}
    if isinstance(value, tuple | list):
        found = [_pooled(each, pool) for each in value]
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    return value
