"""The methods by name: each is a `OneShot` or a `Staged` with its settings."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from typing import Any

from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.problem import Selection, Update
from brainsurgeon.engine.selection import LocalSearch, Magnitude, Randomized, RecentredSearch, WideSearch, WoodFisher
from brainsurgeon.engine.update import Independent, Joint, Keep, Scaled
from brainsurgeon.errors import BrainsurgeonError, UnknownSettingError
from brainsurgeon.exact.polish import Polish
from brainsurgeon.exact.relaxed import Relaxed
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.kinds import check_kind
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.layerwise.solvers import Scored, SparseGPT
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged

Method = OneShot | Staged | Layerwise | Gradual | Auto
SELECTIONS: dict[str, Callable[[], Any]] = {
    "mp": Magnitude,
    "rmp": lambda: Randomized(screen=False),
    "wf-s": WoodFisher,
    "cbs-s": RecentredSearch,
    "wide": WideSearch,
    "algorithm1": LocalSearch,
    "cbs-s-published": lambda: LocalSearch(Randomized(screen=False)),
    "relaxed": Relaxed,
    "polish": Polish,
}
UPDATES: dict[str, Callable[[], Update]] = {
    "cbs-u": lambda: Scaled(Joint()),
    "cbs-u-published": Joint,
    "wf-u": Independent,
}
SHORT = {"wf": "wf-s+wf-u", "cbs": "cbs-s+cbs-u", "cbs-published": "cbs-s-published+cbs-u-published"}
RIVALS: dict[str, tuple[Selection, ...]] = {"cbs": (Magnitude(),)}
"""Where the model or the sample misleads a search, magnitude pruning with the joint update is hard to beat."""
AS_PUBLISHED: dict[str, dict[str, Any]] = {"cbs-s-published": {"whole_loss": True, "selection_damping": 0.0}}
"""How the paper judges masks, and that its selection sees an H without damping."""
LAYERWISE: dict[str, Callable[[], Layerwise]] = {
    "layerwise": Layerwise,
    "wanda": lambda: Layerwise(Scored("wanda"), "wanda", pattern=Pattern("row"), costs="none"),
    "sparsegpt": lambda: Layerwise(SparseGPT(), "sparsegpt", costs="none"),
}
TRAINED = ("auto", "gradual", "staged")
NAMES = (
    *TRAINED,
    *LAYERWISE,
    *SELECTIONS,
    *SHORT,
    "mp+cbs-u",
    "wf-s+cbs-u",
    "rmp+cbs-u",
    "algorithm1+cbs-u",
)
PARTS = ("selection", "update", "rivals", "solver", "plan", "name")


def make_method(method: str | Method | Sequence[Any], settings: dict[str, Any] | None = None) -> Method:
    """Build a method from its name or from a (selection, update) pair, with settings by name.

    A setting goes to the method that has a field of that name, else to its selection, or to what that starts from; one
    that none of them has is refused. `update_scale` is a number or "auto": by default the joint update's is chosen on
    the sample loss and the independent one is taken whole, as published. A `schedule` makes any method a staged one.
    """
    settings = dict(settings or {})
    if isinstance(method, Method):
        made: Method = method
    elif isinstance(method, str):
        made = _by_name(method)
    else:
        selection, update = _checked_pair(method)
        made = OneShot(selection, update, name=f"{type(selection).__name__}+{type(update).__name__}")
    if settings.get("schedule") is not None and isinstance(made, OneShot):
        made = in_stages(made)
    for key, value in settings.items():
        if value is not None or key in _own(made):
            made = _with_setting(made, key, value)
    return made


def in_stages(method: OneShot) -> Staged:
    """Return the same selection and update in stages; what only an examination has is left at its default."""
    update = method.update.update if isinstance(method.update, Scaled) else method.update
    return Staged(method.selection, update, method.rivals, method.name, pattern=method.pattern)


def _checked_pair(method: Any) -> tuple[Selection, Update]:
    if isinstance(method, Sequence) and len(method) == 2 and all(callable(part) for part in method):
        return method[0], method[1]
    raise BrainsurgeonError(
        "method must be a name, one of the method classes (OneShot, Staged, Layerwise, Gradual, Auto), or a pair of a "
        f"selection and an update that can be called, got {method!r}; the names are: {', '.join(NAMES)}"
    )


def _by_name(name: str) -> Method:
    if name == "auto":
        return Auto()
    if name == "staged":
        return Staged(name="staged")
    if name == "gradual":
        return Gradual()
    if name in LAYERWISE:
        return LAYERWISE[name]()
    first, _, second = SHORT.get(name, name).partition("+")
    if first not in SELECTIONS or (second and second not in UPDATES):
        raise BrainsurgeonError(f"unknown method {name!r}.{_hint(name, NAMES)} The methods are: {', '.join(NAMES)}")
    update = UPDATES[second]() if second else Keep()
    return OneShot(SELECTIONS[first](), update, RIVALS.get(name, ()), name, **AS_PUBLISHED.get(first, {}))


def _own(method: Method) -> set[str]:
    return {field.name for field in dataclasses.fields(method)} - set(PARTS)


def _with_setting(method: Method, key: str, value: Any) -> Method:
    if key in _own(method):
        check_kind(method, key, value)
        return dataclasses.replace(method, **{key: value})
    if key == "update_scale" and isinstance(method, OneShot):
        return _scaled(method, value)
    inner = "solver" if isinstance(method, Layerwise) else "plan" if isinstance(method, Gradual) else "selection"
    part = getattr(method, inner, None)
    if key in _settings(part):
        changes: dict[str, Any] = {inner: _inside(part, key, value)}
        return dataclasses.replace(method, **changes)
    known = sorted(_own(method) | _settings(part))
    if isinstance(method, OneShot) and key in _own(Staged()):
        others = " or ".join(f'"{name}"' for name in TRAINED if key in _own(_by_name(name)))
        raise UnknownSettingError(f"{key} belongs to methods in stages: give a schedule, or the method {others}")
    if isinstance(method, Staged) and (key == "update_scale" or key in _own(OneShot(method.selection))):
        raise UnknownSettingError(f"{key} belongs to one-shot methods: leave it out, or leave out the schedule")
    raise UnknownSettingError(
        f"unknown setting {key!r} for this method.{_hint(key, known)} Its settings are: {', '.join(known)}"
    )


def _scaled(method: OneShot, scale: float | str) -> OneShot:
    if isinstance(method.update, Keep):
        raise UnknownSettingError(f"update_scale={scale!r} has nothing to scale: method {method.name!r} has no update")
    inner = method.update.update if isinstance(method.update, Scaled) else method.update
    return dataclasses.replace(method, update=Scaled(inner, scale))


def _inside(selection: Any, key: str, value: Any) -> Any:
    if key in {field.name for field in dataclasses.fields(selection)}:
        check_kind(selection, key, value)
        return dataclasses.replace(selection, **{key: value})
    return dataclasses.replace(selection, start=_inside(selection.start, key, value))


def _settings(selection: Any) -> set[str]:
    if not dataclasses.is_dataclass(selection):
        return set()
    names = {field.name for field in dataclasses.fields(selection)}
    return names | (_settings(selection.start) if hasattr(selection, "start") else set())


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def describe(part: Any) -> Any:
    """Return a method, a selection or an update with all its settings, as plain values for the record."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        # What a part keeps out of its repr, such as the tensors of a given mask, stays out of the record too.
        values = {f.name: describe(getattr(part, f.name)) for f in dataclasses.fields(part) if f.repr}
        return {"type": type(part).__name__, **values}
    if isinstance(part, tuple | list):
        return [describe(each) for each in part]
    return part if isinstance(part, str | int | float | bool | None) else repr(part)
