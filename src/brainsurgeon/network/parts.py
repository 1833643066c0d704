"""A part of a forward pass: the layers in it, in groups that share an input, and the moments of these inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import sum_over_ranks, world_size
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.inputs import Moments
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.network.partition import Marks, first_tensor


class Reached(Exception):  # noqa: N818 (no error)
    """Ends a pass that has shown enough."""


SURVEYED_BYTES = 1 << 31
"""Moments of several groups are taken in one pass while they fit in so much."""


def nowhere(number: int, output: Any) -> None:
    """Nothing comes after a part."""


@dataclass
class Part:
    """A part of the forward pass: the groups of its layers in the order of the calls, and a way to run a batch.

    `move` takes what the part gave for a batch to the part after it.
    """

    name: str
    layers: list[LinearMap]
    run: Callable[[int], Any]
    batches: int
    groups: list[list[LinearMap]] = field(default_factory=list)
    move: Callable[[int, Any], None] = nowhere
    moved: bool = False
    _repeated: set[str] = field(default_factory=set)

    def find_groups(self) -> None:
        """Run the part on a batch: layers that are given the same tensor, as it was then, form a group.

        Layers that it does not call (experts that none of its samples went to) are looked for in the other batches.
        """
        seen: dict[Any, list[LinearMap]] = {}
        marks, missing = Marks(), list(self.layers)

        def note(layer: LinearMap, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            first, _rest = first_tensor(args, kwargs)
            group = seen.setdefault(None if first is None else marks.of(first), [])
            if any(layer in other for other in seen.values()):
                self._repeated.add(layer.name)
            else:
                group.append(layer)

        for number in range(self.batches):
            with watching(missing, note):
                self.run(number)
            missing = [layer for layer in missing if not any(layer in group for group in seen.values())]
            if not missing:
                break
        self.groups = [group for group in seen.values() if group]

    def moments(self, group: Sequence[LinearMap]) -> dict[str, Moments]:
        """Return the mean moments of the inputs of a group's layers: one pass, which ends with the last of them.

        Each rank adds those of its own batches.
        """
        left: set[str] = set()

        def end(layer: LinearMap) -> None:
            left.discard(layer.name)
            # A layer that is called several times in a pass is not known to be the last before the pass ends.
            if not left and not self._repeated & {each.name for each in group}:
                raise Reached

        def run(number: int) -> None:
            left.update(layer.name for layer in _share_input(group, self._repeated))
            with suppress(Reached):
                self.run(number)

        return self._take([group], run, end)

    def inputs(self, layer: LinearMap, number: int) -> list[Tensor]:
        """Return X of the first call of a layer for a batch, if there is one: the pass ends with it."""
        found: list[Tensor] = []

        def note(_: LinearMap, __: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found.append(layer.read(args, kwargs))
            raise Reached

        with watching([layer], note), suppress(Reached):
            self.run(number)
        return found

    def survey(self, groups: Sequence[Sequence[LinearMap]]) -> dict[str, Moments]:
        """Return the moments of all these groups, and go on to the next part: nothing of this one may change any more.

        Mostly one pass; several where the moments would take too much memory.
        """

        def last(number: int) -> None:
            self.move(number, self.run(number))

        found: dict[str, Moments] = {}
        packs = _packed(groups, self._repeated)
        for pack in packs:
            found |= self._take(pack, last if pack is packs[-1] else self.run, lambda layer: None)
        self.moved = bool(packs)
        return found

    def go_on(self) -> None:
        """Move what the batches give to the next part, unless a survey has."""
        for number in range(0 if self.moved else self.batches):
            pulse()
            self.move(number, self.run(number))

    def _take(
        self, groups: Sequence[Sequence[LinearMap]], run: Callable[[int], Any], seen: Callable[[LinearMap], None]
    ) -> dict[str, Moments]:
        totals: dict[str, Tensor] = {}
        columns: dict[str, int] = {}
        shared = [_share_input(group, self._repeated) for group in groups]

        def add(layer: LinearMap, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = layer.read(args, kwargs)
            product = torch.bmm(x, x.transpose(1, 2))
            totals[layer.name] = totals[layer.name].add_(product) if layer.name in totals else product.double()
            columns[layer.name] = columns.get(layer.name, 0) + x.shape[2]
            seen(layer)

        with watching([layer for some in shared for layer in some], add):
            for number in range(self.batches):
                pulse()
                run(number)
        found: dict[str, Moments] = {}
        for group, some in zip(groups, shared, strict=True):
            _add_up(some, totals, columns)
            found |= _spread(group, some, totals, columns, self._repeated)
        return found


def _packed(groups: Sequence[Sequence[LinearMap]], apart: Collection[str]) -> list[list[Sequence[LinearMap]]]:
    """Put groups together whose moments fit in memory at once."""
    packs: list[list[Sequence[LinearMap]]] = []
    room = 0
    for group in groups:
        size = sum(8 * layer.groups * layer.rows(layer.weight).shape[-1] ** 2 for layer in _share_input(group, apart))
        if size > room:
            packs.append([])
            room = SURVEYED_BYTES
        packs[-1].append(group)
        room -= size
    return packs


def _share_input(group: Sequence[LinearMap], apart: Collection[str]) -> list[LinearMap]:
    """Return one layer for each kind of input matrix: linear layers of a group have the same, if called but once."""
    kept: dict[Any, LinearMap] = {}
    for layer in group:
        kept.setdefault("linear" if _is_flat(layer) and layer.name not in apart else layer.name, layer)
    return list(kept.values())


def _is_flat(layer: LinearMap) -> bool:
    return isinstance(layer.module, nn.Linear) or layer.transposed


def _add_up(shared: Sequence[LinearMap], totals: dict[str, Tensor], columns: dict[str, int]) -> None:
    """Add up what all ranks have seen; a layer may have been called on some of them alone."""
    if world_size() == 1:
        return
    seen = sum_over_ranks(torch.tensor([columns.get(layer.name, 0) for layer in shared]))
    for layer, count in zip(shared, seen.tolist(), strict=True):
        if not count:
            continue
        if layer.name not in totals:
            inputs = layer.rows(layer.weight).shape[-1]
            totals[layer.name] = layer.weight.new_zeros(layer.groups, inputs, inputs, dtype=torch.float64)
        totals[layer.name], columns[layer.name] = sum_over_ranks(totals[layer.name]), count


def _spread(
    group: Sequence[LinearMap],
    shared: Sequence[LinearMap],
    totals: dict[str, Tensor],
    columns: dict[str, int],
    apart: Collection[str],
) -> dict[str, Moments]:
    linear = next((layer.name for layer in shared if _is_flat(layer) and layer.name not in apart), None)
    found = {}
    for layer in group:
        name = layer.name if layer.name in totals else linear
        if name is None or name not in totals:
            raise BrainsurgeonError(f"layer {layer.name!r} saw no input in the calibration passes: exclude it")
        found[layer.name] = Moments(totals[name] / columns[name], columns[name], layer.transposed)
    return found


@contextmanager
def watching(layers: Sequence[LinearMap], note: Callable[..., None]) -> Iterator[None]:
    """Have every call of the layers noted for a while, without gradients."""
    with ExitStack() as stack, torch.no_grad():
        for layer in layers:
            handle = layer.module.register_forward_pre_hook(partial(note, layer), with_kwargs=True)
            stack.callback(handle.remove)
        yield
