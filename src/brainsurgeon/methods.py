"""The paper's names: each method is a selection and an update."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import BrainsurgeonError
from .problem import Selection, Update
from .selection import (
    JointSearch,
    LocalSearch,
    Magnitude,
    MultiStart,
    Polish,
    Randomized,
    RecentredSearch,
    Relaxed,
    Relinking,
    Tabu,
    WideSearch,
    WoodFisher,
)
from .update import Independent, Joint, Keep, Scaled

SELECTIONS: dict[str, Callable[[], Any]] = {
    "mp": Magnitude,
    "rmp": lambda: Randomized(screen=False),
    "wf-s": WoodFisher,
    "cbs-s": RecentredSearch,
    "wide": WideSearch,
    "algorithm1": LocalSearch,
    "joint": JointSearch,
    "relaxed": Relaxed,
    "polish": Polish,
    "multi-start": MultiStart,
    "tabu": Tabu,
    "relink": Relinking,
}
UPDATES: dict[str, Callable[[], Update]] = {
    "cbs-u": lambda: Scaled(Joint()),
    "wf-u": Independent,
}
SHORT = {"wf": "wf-s+wf-u", "cbs": "cbs-s+cbs-u", "auto": "wf-s+cbs-u"}
RIVALS: dict[str, tuple[Selection, ...]] = {"cbs": (Magnitude(),)}
"""Where the model or the sample misleads a search, magnitude pruning with the joint update is hard to beat."""
NAMES = (*SELECTIONS, *SHORT, "mp+cbs-u", "wf-s+cbs-u", "rmp+cbs-u", "algorithm1+cbs-u")


@dataclass(frozen=True)
class Method:
    """A selection and an update, with a name for reports.

    The masks of `rivals` are updated too, and the sample loss says which of the outcomes is kept.
    """

    name: str
    selection: Selection
    update: Update
    rivals: tuple[Selection, ...] = ()

    @property
    def uses_curvature(self) -> bool:
        """Whether gradients must be collected."""
        return any(getattr(part, "uses_curvature", True) for part in (self.selection, self.update))

    def describe(self) -> dict[str, Any]:
        """Return every setting, for the record."""
        parts = {"selection": _describe(self.selection), "update": _describe(self.update)}
        return {"name": self.name, **parts, "rivals": [_describe(rival) for rival in self.rivals]}


def make_method(
    method: str | Method | Sequence[Any], settings: dict[str, Any], update_scale: float | str | None = None
) -> Method:
    """Build a method from its name, or from a (selection, update) pair, with settings by name.

    Settings such as `num_draws` or `window` go to the selection (or to the selection that it starts from) which has a
    field of that name. `update_scale` is a number or "auto"; by default the joint update's is chosen on the sample
    loss and the independent one is taken whole, as published.
    """
    rivals: tuple[Selection, ...] = ()
    if isinstance(method, Method):
        name, selection, update, rivals = method.name, method.selection, method.update, method.rivals
    elif isinstance(method, str):
        name, rivals = method, RIVALS.get(method, ())
        selection, update = _by_name(method)
    else:
        selection, update = _checked_pair(method)
        name = f"{type(selection).__name__}+{type(update).__name__}"
    for key, value in settings.items():
        selection = _with_setting(selection, key, value)
    if update_scale is not None and isinstance(update, Keep):
        raise BrainsurgeonError(f"update_scale={update_scale!r} has nothing to scale: method {name!r} has no update")
    if update_scale is not None:
        inner = update.update if isinstance(update, Scaled) else update
        update = Scaled(inner, update_scale)
    return Method(name, selection, update, rivals)


def _checked_pair(method: Any) -> tuple[Selection, Update]:
    if isinstance(method, Sequence) and len(method) == 2 and all(callable(part) for part in method):
        return method[0], method[1]
    raise BrainsurgeonError(
        f"method must be a name, or a pair of a selection and an update that can be called, got {method!r}; "
        f"the names are: {', '.join(NAMES)}"
    )


def _by_name(name: str) -> tuple[Selection, Update]:
    first, _, second = SHORT.get(name, name).partition("+")
    if first not in SELECTIONS or (second and second not in UPDATES):
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BrainsurgeonError(f"unknown method {name!r}.{hint} The methods are: {', '.join(NAMES)}")
    return SELECTIONS[first](), UPDATES[second]() if second else Keep()


def _with_setting(selection: Any, key: str, value: Any) -> Any:
    known = sorted(_settings(selection))
    if key not in known:
        near = difflib.get_close_matches(key, known, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BrainsurgeonError(
            f"unknown setting {key!r} for this method.{hint} Its settings are: {', '.join(known) or 'none'}"
        )
    if key in {field.name for field in dataclasses.fields(selection)}:
        return dataclasses.replace(selection, **{key: value})
    return dataclasses.replace(selection, start=_with_setting(selection.start, key, value))


def _settings(selection: Any) -> set[str]:
    if not dataclasses.is_dataclass(selection):
        return set()
    names = {field.name for field in dataclasses.fields(selection)}
    return names | (_settings(selection.start) if hasattr(selection, "start") else set())


def _describe(part: Any) -> Any:
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        # What a part keeps out of its repr, such as the tensors of a given mask, stays out of the record too.
        values = {f.name: _describe(getattr(part, f.name)) for f in dataclasses.fields(part) if f.repr}
        return {"kind": type(part).__name__, **values}
    return part if isinstance(part, str | int | float | bool | None) else repr(part)
