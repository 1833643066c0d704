"""Settings by name are held to the kind that their field declares: a wrong one is refused before any work."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from brainsurgeon.errors import BrainsurgeonError

MOST = 10**15
"""No count is larger than this; a larger one is a slip."""


def _is_int(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= MOST


def _is_float(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, Real) and not isinstance(value, Integral) and value == value)


KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", _is_int),
    float: ("a number", _is_float),
    str: ("a word", lambda value: isinstance(value, str)),
    bool: ("True or False", lambda value: isinstance(value, bool)),
    type(None): ("None", lambda value: value is None),
}


def check_kind(owner: Any, key: str, value: Any) -> None:
    """Refuse a value that is not of the kind of a dataclass's field; kinds that are not plain are its own to check."""
    members = _members(type(owner), key)
    if not members:
        return
    told = []
    for member in members:
        if member in KINDS:
            words, fits = KINDS[member]
        elif _is_callable(member):
            words, fits = "something that can be called", callable
        else:
            return  # a kind of its own: a schedule, a pattern, a type of numbers
        if fits(value):
            return
        told.append(words)
    raise BrainsurgeonError(f"{key} must be {' or '.join(told)}, got {value!r:.80}")


def _members(kind: type, key: str) -> tuple[Any, ...]:
    try:
        hint = typing.get_type_hints(kind)[key]
    except (NameError, KeyError, TypeError):  # a user's own class may name what is not there when it runs
        return ()
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _is_callable(member: Any) -> bool:
    protocol = getattr(member, "_is_protocol", False) and "__call__" in vars(member)
    return protocol or typing.get_origin(member) is Callable
