"""How a forward pass falls into parts that can be run one after the other.

A *chain* is a list of modules of which each takes what the one before it gives, as its first argument, and nothing else
that the chain computes: the blocks of a transformer, the stages and blocks of a residual network. It is found by
watching one forward pass: modules are edges from the tensor they are given to the tensor they give, and the longest
path is the chain. What comes before it is the head, what comes after it the tail.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Mark = tuple[int, int]
"""Which tensor, and how often it had been written into: an operation in place makes another of it."""
Extras = tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Call:
    """One call of a module in a forward pass: the tensors that went in first and came out first, and all others.

    `made` are the tensors among its outputs that it was not given. `extras` says of each output behind the first which
    argument it is, by place or name (None: no argument); it is None itself where the output is a plain tensor.
    """

    name: str
    source: Mark
    result: Mark
    given: frozenset[Mark]
    made: frozenset[Mark]
    extras: Extras


@dataclass(frozen=True)
class Chain:
    """The names of the modules of a chain, in order; empty where a forward pass has none.

    `extras` says of each what it gives beside the hidden state, as `Call` does.
    """

    names: tuple[str, ...] = ()
    extras: tuple[Extras, ...] = ()

    def part_of(self, layer: str) -> int | None:
        """Return the number of the module that a layer lies in, None for the head and the tail."""
        for number, name in enumerate(self.names):
            if layer == name or layer.startswith(f"{name}."):
                return number
        return None


@dataclass(frozen=True)
class _Path:
    """A chain under way: its calls, how many of the wanted layers they hold, and in how many of them these lie."""

    calls: tuple[Call, ...] = ()
    covered: int = 0
    parts: int = 0

    def with_call(self, call: Call, held: int) -> _Path:
        return _Path((*self.calls, call), self.covered + held, self.parts + (held > 0))

    @property
    def score(self) -> tuple[int, int]:
        return self.covered, self.parts


def find_chain(
    model: nn.Module, forward: Callable[[], Any], layers: Iterable[str], deepest: int | None = None
) -> Chain:
    """Watch one forward pass, and return the chain that holds the most of the named layers, in the most parts.

    The finer a chain is, the less has to be run again. Its modules lie no deeper in others than `deepest` says.
    """
    wanted = tuple(layers)
    calls = _watch(model, forward)
    times = Counter(call.name for call in calls)
    best: dict[Mark, _Path] = {}  # by tensor: the best path that ends in it
    for call in calls:
        if times[call.name] > 1 or call.source == call.result or _is_deeper(call.name, deepest):
            continue
        held = sum(layer.startswith(f"{call.name}.") for layer in wanted)
        found = best.get(call.source, _Path()).with_call(call, held)
        if not _may_follow(found, calls):
            found = _Path().with_call(call, held)
        if found.score > best.get(call.result, _Path()).score:
            best[call.result] = found
    longest = max(reversed(best.values()), key=lambda path: path.score, default=_Path())  # of equals, the outer one
    if longest.parts < 2:
        return Chain()
    holding = [k for k, call in enumerate(longest.calls) if any(la.startswith(f"{call.name}.") for la in wanted)]
    kept = longest.calls[holding[0] : holding[-1] + 1]
    return Chain(tuple(call.name for call in kept), tuple(call.extras for call in kept))


def finest_chain(find: Callable[[int | None], Chain], agrees: Callable[[Chain], bool]) -> tuple[Chain, bool]:
    """Return the finest chain that gives what the whole model gives, else none; say whether any was found.

    `find` tells the chain of modules that lie no deeper than a depth: one that goes through a branch of a block is
    given up for the blocks.
    """
    deepest, found = None, False
    while deepest is None or deepest >= 0:
        chain = find(deepest)
        if not chain.names:
            break
        found = True
        if agrees(chain):
            return chain, True
        deepest = max(name.count(".") for name in chain.names) - 1
    return Chain(), found


def _is_deeper(name: str, deepest: int | None) -> bool:
    return deepest is not None and name.count(".") > deepest


def _may_follow(path: _Path, calls: list[Call]) -> bool:
    """Say whether the last module of a path is given nothing else that the others, or what they hold, have computed.

    Nor may any other module be given what it is given first.
    """
    *before, last = path.calls
    if not before:
        return True
    inside = tuple(f"{call.name}." for call in before)
    own = {call.name for call in before}
    made = [call.made for call in calls if call.name in own or call.name.startswith(inside)]
    if any(tensors & last.given for tensors in made):
        return False
    for call in calls:
        if call.name == last.name or call.name.startswith(f"{last.name}."):
            continue
        apart = not last.name.startswith(f"{call.name}.") and call.source != call.result
        if last.source in call.given or (last.source == call.source and apart):
            return False
    return True


def _watch(model: nn.Module, forward: Callable[[], Any]) -> list[Call]:
    """Run a forward pass; return the calls in the order in which they end."""
    calls: list[Call] = []
    marks = Marks()
    entered: list[tuple[Mark | None, frozenset[Mark]]] = []
    names = {module: name for name, module in model.named_modules() if name}

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        first, rest = first_tensor(args, kwargs)
        others = _tensors(rest)
        entered.append((None if first is None else marks.of(first), frozenset(map(marks.of, others))))

    def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        source, given = entered.pop()
        wrapped = isinstance(output, tuple | list) and bool(output)
        result = output[0] if wrapped else output
        made = _tensors(output)
        if source is not None and isinstance(result, Tensor):
            fresh = frozenset(map(marks.of, made)) - given - {source}  # what is only handed on is not made here
            extras = _extras(output, args, kwargs) if wrapped else None
            calls.append(Call(names[module], source, marks.of(result), given, fresh, extras))

    hooks = [module.register_forward_pre_hook(enter, with_kwargs=True) for module in names]
    hooks += [module.register_forward_hook(leave, with_kwargs=True) for module in names]
    try:
        with torch.no_grad():
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _extras(output: tuple[Any, ...] | list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Extras:
    slots: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return tuple(next((slot for slot, value in slots if value is each), None) for each in output[1:])


class Marks:
    """Numbers for tensors: the same one for as long as a tensor lives, and no other tensor has it, then or later.

    No tensor is kept: all that a pass computes would be far more than what is alive in it at any time.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._numbers = itertools.count()

    def of(self, tensor: Tensor) -> Mark:
        """Return the number of a tensor, and how often it has been written into."""
        known = self._seen.get(id(tensor))
        if known is None or known[0]() is not tensor:  # another one had this place before
            known = self._seen[id(tensor)] = weakref.ref(tensor), next(self._numbers)
        return known[1], 0 if tensor.is_inference() else tensor._version


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor | None, list[Any]]:
    """Return the tensor that a module is given first, and everything else that it is given."""
    if args:
        first, rest = args[0], [*args[1:], *kwargs.values()]
    else:
        values = list(kwargs.values())
        first, rest = (values[0], values[1:]) if values else (None, [])
    return (first if isinstance(first, Tensor) else None), rest


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in _tensors(each)]
    return []
