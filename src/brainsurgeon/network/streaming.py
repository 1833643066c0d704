"""The forward pass in parts: hidden states stand before a part, move through it once, and are never computed again.

For each part of a network (its head, the modules of its chain, its tail) the moments of the inputs of its layers are
taken with one pass over the calibration batches for every group of layers that share an input, and one more pass gives
the inputs of the next part. Only the part at work lies on the device; the rest of the model stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.inputs import Moments, flat_transposed, read_input, reader_of
from brainsurgeon.network.partition import Chain, first_tensor
from brainsurgeon.network.weights import Layer
from brainsurgeon.samples.batches import Batch, batch_size


class _Reached(Exception):  # noqa: N818 (no error: it ends a pass that has shown enough)
    pass


@dataclass(frozen=True)
class LinearMap:
    """A layer that is a plain linear map of its inputs: its parameter's name, and the module that holds it."""

    name: str
    module: nn.Module

    @property
    def weight(self) -> nn.Parameter:
        """Its parameter."""
        return self.module.weight  # type: ignore[return-value]

    @property
    def transposed(self) -> bool:
        """Whether its weights lie inputs first."""
        return self._reader is flat_transposed

    @property
    def groups(self) -> int:
        """The number of groups of a grouped convolution, 1 for all others."""
        return int(getattr(self.module, "groups", 1))

    @property
    def _reader(self) -> Callable[[Tensor], Tensor]:
        found = reader_of(self.module, _layer(self.name, self.weight))
        assert found is not None  # `linear_maps` gives no others
        return found

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Return X, groups × inputs × positions."""
        return read_input(self._reader, args, kwargs)

    def rows(self, values: Tensor) -> Tensor:
        """Return weights, or a mask of them, as groups × rows × inputs."""
        flat = values.T if self.transposed else values.reshape(values.shape[0], -1)
        return flat.reshape(self.groups, -1, flat.shape[1])

    def stored(self, rows: Tensor) -> Tensor:
        """Return groups × rows × inputs in the shape of the parameter."""
        flat = rows.reshape(-1, rows.shape[-1])
        return flat.T.contiguous() if self.transposed else flat.reshape(self.weight.shape)


def linear_maps(model: nn.Module, names: Sequence[str]) -> list[LinearMap]:
    """Return the named parameters that are plain linear maps: linear layers and convolutions."""
    found = []
    for name in names:
        module = model.get_submodule(name.rpartition(".")[0])
        if reader_of(module, _layer(name, model.get_parameter(name))) is not None:
            found.append(LinearMap(name, module))
    return found


def _layer(name: str, weight: nn.Parameter) -> Layer:
    return Layer(name, tuple(weight.shape), 0, weight.numel())


@dataclass
class Part:
    """A part of the forward pass: the groups of its layers in the order of the calls, and a way to run it on a batch."""

    name: str
    layers: list[LinearMap]
    run: Callable[[int], Any]
    batches: int
    groups: list[list[LinearMap]] = field(default_factory=list)

    def find_groups(self) -> None:
        """Run the part on the first batch: layers that are given the same tensor form a group."""
        seen: dict[int, list[LinearMap]] = {}
        alive: list[Any] = []

        def note(layer: LinearMap, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            first, _rest = first_tensor(args, kwargs)
            alive.append(first)  # while it lives, no other tensor has its id
            group = seen.setdefault(id(first), [])
            if all(layer not in other for other in seen.values()):
                group.append(layer)

        with _watching(self.layers, note):
            self.run(0)
        self.groups = [group for group in seen.values() if group]

    def moments(self, group: Sequence[LinearMap]) -> dict[str, Moments]:
        """Return the mean moments of the inputs of a group's layers: one pass, which ends with the last of them."""
        totals: dict[str, Tensor] = {}
        columns: dict[str, int] = {}
        shared = _share_input(group)
        left: set[str] = set()

        def add(layer: LinearMap, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = layer.read(args, kwargs)
            product = torch.bmm(x, x.transpose(1, 2)).double()
            totals[layer.name] = totals[layer.name] + product if layer.name in totals else product
            columns[layer.name] = columns.get(layer.name, 0) + x.shape[2]
            left.discard(layer.name)
            if not left and layer.name in once:
                raise _Reached

        # A layer that is called several times in a pass is not known to be the last before the pass ends.
        once = {layer.name for layer in shared} if self._called_once(shared) else set()
        with _watching(shared, add):
            for number in range(self.batches):
                left = {layer.name for layer in shared}
                try:
                    self.run(number)
                except _Reached:
                    pass
        return _spread(group, shared, totals, columns)

    def _called_once(self, layers: Sequence[LinearMap]) -> bool:
        calls: list[str] = []

        def note(layer: LinearMap, *_: Any) -> None:
            calls.append(layer.name)

        with _watching(layers, note):
            self.run(0)
        return len(calls) == len(set(calls))


def _share_input(group: Sequence[LinearMap]) -> list[LinearMap]:
    """Return one layer for each kind of input matrix: linear layers of a group have the same."""
    kept: dict[Any, LinearMap] = {}
    for layer in group:
        plain = isinstance(layer.module, nn.Linear) or layer.transposed
        kept.setdefault("linear" if plain else layer.name, layer)
    return list(kept.values())


def _spread(
    group: Sequence[LinearMap], shared: Sequence[LinearMap], totals: dict[str, Tensor], columns: dict[str, int]
) -> dict[str, Moments]:
    linear = next((layer.name for layer in shared if isinstance(layer.module, nn.Linear) or layer.transposed), None)
    found = {}
    for layer in group:
        name = layer.name if layer.name in totals else linear
        if name is None or name not in totals:
            raise BrainsurgeonError(f"layer {layer.name!r} saw no input in the calibration passes: exclude it")
        found[layer.name] = Moments(totals[name] / columns[name], columns[name], layer.transposed)
    return found


@contextmanager
def _watching(layers: Sequence[LinearMap], note: Callable[..., None]) -> Iterator[None]:
    with ExitStack() as stack, torch.no_grad():
        for layer in layers:
            handle = layer.module.register_forward_pre_hook(partial(note, layer), with_kwargs=True)
            stack.callback(handle.remove)
        yield


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
        steps = [self._head, *(partial(self._block, number) for number in range(len(self.chain.names))), self._tail]
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
            raise _Reached

        def run(number: int) -> None:
            try:
                self.call(self.batches[number])
            except _Reached:
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

        with _watching(self._outside(), note):
            run(0)
        self._in_head = {layer.name for layer in seen}
        return seen

    def _keep(self, caught: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
        """Take the hidden states out of the arguments; what is equal for several batches is kept once."""
        pool: list[Tensor] = []
        for args, kwargs in caught:
            hidden, _ = first_tensor(args, kwargs)
            assert hidden is not None  # the chain was found by this tensor
            self._hidden.append(hidden)
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
            if self._by_name is not None:
                return module(*rest, **{self._by_name: self._hidden[batch], **named})
            return module(self._hidden[batch], *rest, **named)

        with _on(module, self.device), torch.no_grad():
            if not done:
                yield self._part(name, own, run)
            for batch in range(len(self.batches)):
                output = run(batch)
                self._hidden[batch] = output[0] if isinstance(output, tuple | list) else output
                self._wrapped = output

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
            hidden, like = self._hidden[current[0]], self._wrapped
            return (hidden, *like[1:]) if isinstance(like, tuple | list) else hidden

        def run(number: int) -> Any:
            current[0] = number
            return self.call(self.batches[number])

        originals = [module.forward for module in modules]
        try:
            for module in modules:
                module.forward = hand_on  # type: ignore[method-assign]
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
