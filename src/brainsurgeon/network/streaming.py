"""The forward pass in parts: hidden states stand before a part, move through it once, and are never computed again.

For each part of a network (its head, the modules of its chain, its tail) the moments of the inputs of its layers are
taken with one pass over the calibration batches for every group of layers that share an input, and one more pass gives
the inputs of the next part. Only the part at work lies on the device; the rest of the model stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.network.partition import Chain, first_tensor
from brainsurgeon.network.parts import Part, Reached, watching
from brainsurgeon.samples.batches import Batch, batch_size

REST = torch.device("cpu")
"""Where hidden states wait: a device holds one part, its moments and one batch."""


@dataclass
class Stream:
    """Calibration batches on their way through a model, part by part.

    `call` runs the whole model on a batch; the model's outputs are not looked at.
    """

    model: nn.Module
    call: Callable[[Batch], Any]
    batches: list[Batch]
    layers: list[LinearMap]
    chain: Chain
    device: torch.device
    _hidden: list[Tensor] = field(default_factory=list)
    _given: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    _by_name: str | None = None
    _wrapped: Any = None
    _in_head: set[str] = field(default_factory=set)

    def parts(self, skip: int = 0) -> Iterator[Part]:
        """Yield the parts in order; going on to the next moves the hidden states through the last.

        The first `skip` parts are passed through without being yielded: a run that is resumed has done them.
        """
        if not self.chain.names:
            if not skip:
                with _on(self.model, self.device):
                    yield self._part("model", self.layers, self._whole)
            return
        steps: list[Callable[[bool], Iterator[Part]]] = [
            self._head,
            *(partial(self._block, number) for number in range(len(self.chain.names))),
            self._tail,
        ]
        for number, step in enumerate(steps):
            yield from step(number < skip)

    @property
    def total(self) -> int:
        """The number of parts."""
        return len(self.chain.names) + 2 if self.chain.names else 1

    def _part(self, name: str, layers: list[LinearMap], run: Callable[[int], Any]) -> Part:
        part = Part(name, layers, run, len(self.batches))
        if layers:
            part.find_groups()
        return part

    def _whole(self, number: int) -> Any:
        return self.call(self.batches[number])

    def _outside(self) -> list[LinearMap]:
        return [layer for layer in self.layers if self.chain.part_of(layer.name) is None]

    def _head(self, done: bool) -> Iterator[Part]:
        """Run the model up to the first module of the chain, and keep what that is given."""
        first = self.model.get_submodule(self.chain.names[0])
        caught: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def catch(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            caught.append((args, kwargs))
            raise Reached

        def run(number: int) -> None:
            try:
                self.call(self.batches[number])
            except Reached:
                pass

        with _on(self.model, self.device, without=self.chain):
            handle = first.register_forward_pre_hook(catch, with_kwargs=True)
            try:
                with torch.no_grad():
                    part = self._part("head", [], run)
                    part.layers = self._called_before(run)
                    if part.layers:
                        part.find_groups()
                    if not done:
                        yield part
                    caught.clear()
                    for number in range(len(self.batches)):
                        run(number)
            finally:
                handle.remove()
        self._keep(caught)

    def _called_before(self, run: Callable[[int], None]) -> list[LinearMap]:
        seen: list[LinearMap] = []

        def note(layer: LinearMap, *_: Any) -> None:
            if layer not in seen:
                seen.append(layer)

        with watching(self._outside(), note):
            run(0)
        self._in_head = {layer.name for layer in seen}
        return seen

    def _keep(self, caught: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
        """Take the hidden states out of the arguments; what is equal for several batches is kept once."""
        pool: list[Tensor] = []
        for args, kwargs in caught:
            hidden, _ = first_tensor(args, kwargs)
            assert hidden is not None  # the chain was found by this tensor
            self._hidden.append(hidden.to(REST))
            rest = args[1:] if args else args
            named = dict(kwargs) if args else dict(list(kwargs.items())[1:])
            self._by_name = None if args else next(iter(kwargs))
            self._given.append((_pooled(rest, pool), _pooled(named, pool)))

    def _block(self, number: int, done: bool) -> Iterator[Part]:
        name = self.chain.names[number]
        module = self.model.get_submodule(name)
        own = [layer for layer in self.layers if self.chain.part_of(layer.name) == number]

        def run(batch: int) -> Any:
            rest, named = self._given[batch]
            hidden = self._hidden[batch].to(self.device)
            if self._by_name is not None:
                return module(*rest, **{self._by_name: hidden, **named})
            return module(hidden, *rest, **named)

        with _on(module, self.device), torch.no_grad():
            if not done:
                yield self._part(name, own, run)
            for batch in range(len(self.batches)):
                output = run(batch)
                hidden = output[0] if isinstance(output, tuple | list) else output
                self._hidden[batch] = hidden.to(REST)
                self._wrapped = (None, *output[1:]) if isinstance(output, tuple | list) else None

    def _tail(self, done: bool) -> Iterator[Part]:
        """Run the model with its chain passed over: what is behind it is given the hidden states that were reached."""
        layers = [layer for layer in self._outside() if layer.name not in self._in_head]
        if done or not layers:
            return
        with self._passed_over() as run:
            yield self._part("tail", layers, run)

    def losses(self) -> Iterator[float]:
        """Yield what `call` gives for each batch, after the hidden states have gone through all parts."""
        for _ in self.parts(skip=self.total):
            pass
        if not self.chain.names:
            with _on(self.model, self.device), torch.no_grad():
                yield from (float(self._whole(number)) for number in range(len(self.batches)))
            return
        with self._passed_over() as run:
            yield from (float(run(number)) for number in range(len(self.batches)))

    @contextmanager
    def _passed_over(self) -> Iterator[Callable[[int], Any]]:
        """Give a way to run the model on a batch whose chain only hands on the hidden states that were reached."""
        modules = [self.model.get_submodule(name) for name in self.chain.names]
        current = [0]

        def hand_on(*args: Any, **kwargs: Any) -> Any:
            hidden, like = self._hidden[current[0]].to(self.device), self._wrapped
            return (hidden, *like[1:]) if isinstance(like, tuple | list) else hidden

        def run(number: int) -> Any:
            current[0] = number
            return self.call(self.batches[number])

        originals = [module.forward for module in modules]
        try:
            for module in modules:
                module.forward = hand_on
            with _on(self.model, self.device, without=self.chain), torch.no_grad():
                yield run
        finally:
            for module in modules:
                del module.forward
            assert [module.forward for module in modules] == originals


def streamed_loss(stream: Stream) -> float:
    """Return the mean loss over the batches, with every part on the device only while it is at work."""
    total, samples = 0.0, 0
    for value, batch in zip(stream.losses(), stream.batches, strict=True):
        total += value * batch_size(batch)
        samples += batch_size(batch)
    mean = total / samples
    return mean if math.isfinite(mean) else math.inf


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
        return type(value)(_pooled(each, pool) for each in value)
    return value


@contextmanager
def _on(module: nn.Module, device: torch.device, without: Chain | None = None) -> Iterator[None]:
    """Put a module's tensors on the device for a while, but for those of a chain; they go back where they were."""
    skipped = tuple(f"{name}." for name in without.names) if without else ()
    tensors = [*module.named_parameters(), *module.named_buffers()]
    moved = [(tensor, tensor.device) for name, tensor in tensors if not (skipped and name.startswith(skipped))]
    for tensor, _ in moved:
        tensor.data = tensor.data.to(device)
    try:
        yield
    finally:
        for tensor, home in moved:
            tensor.data = tensor.data.to(home)
