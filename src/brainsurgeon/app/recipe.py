"""A recipe: one YAML or TOML file that holds everything a run needs, checked before any work.

Its keys are those below and every setting of the methods, which are not written down twice: what a recipe leaves out is
the method's own default. A run writes its recipe back, so that the same file makes the same run.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brainsurgeon.app.target import DEMO, LANGUAGE
from brainsurgeon.engine.budget import Part, exact_count, names_every
from brainsurgeon.errors import BrainsurgeonError, UnknownSettingError
from brainsurgeon.network.names import name_matches
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.goal import Goal
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.methods import PARTS, Method, make_method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.schedule import Stages

Share = Annotated[float, Field(gt=0, lt=1)]
LayerShare = Annotated[float, Field(ge=0, le=1)]
USUAL = 0.9
"""The sparsity where none is given."""
MOST_THREADS = 1024
MOST_TEXT, DEEPEST = 1 << 20, 16
"""Bytes and levels of a recipe; one that is larger or deeper is refused before it is read."""
Plain = str | int | float | bool | None
METHODS = (OneShot, Staged, Layerwise, Gradual, Auto)
NOT_PLAIN = (*PARTS, "first_cut", "augment")
"""Settings that are objects, and so cannot be written in a file."""
SETTINGS = (
    *dict.fromkeys(f.name for kind in METHODS for f in dataclasses.fields(kind) if f.name not in NOT_PLAIN),
    "update_scale",
)
"""Keys that go to the methods which have them."""


TEXTS = ("text", "test_text")
"""Arguments of a language model that are files."""


class _Loader(yaml.SafeLoader):
    """YAML without objects, which reads 1e-4 as the number that everyone means by it, and 2:4 as a word."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in ("int", "float")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?\d[\d_]*$"), list("+-0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"),
    list("+-.0123456789"),
)


class _Dumper(yaml.SafeDumper):
    """YAML without aliases, which the reader takes none of."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class RecipeError(BrainsurgeonError):
    """A recipe that cannot be followed; the message says which key, and what it may be."""


class Recipe(BaseModel):
    """What to prune, how, and with which settings. Made by `make_recipe`.

    `settings` holds the settings of methods that were given, `options` those of their selections. A `goal` stands in
    place of a sparsity, by the names of `Goal`'s fields; with `sweep` the sparsities are legs of one run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    arguments: dict[str, Any] = {}
    checkpoint: str | None = None
    sparsity: Share | list[Share] | None = None
    goal: dict[str, Plain] | None = None
    sweep: bool = False
    method: str | list[str] = "auto"
    budget: Literal["global", "uniform"] | dict[str, LayerShare] = "global"
    include: str | list[str] | None = None
    exclude: str | list[str] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] = 0
    device: str | None = None
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = None
    options: dict[str, Plain] = {}
    settings: dict[str, Any] = {}

    @property
    def sparsities(self) -> list[float]:
        """All sparsities, one or more; 0.9 where none is given."""
        return self.sparsity if isinstance(self.sparsity, list) else [self.sparsity or USUAL]

    def sparsity_of(self, nominal: float, layers: Sequence[Part]) -> float | None:
        """Return one of the sparsities; None where none was given and the budget names every layer, which says it."""
        return None if self.sparsity is None and names_every(self.budget, layers, name_matches) else nominal

    @property
    def methods(self) -> list[str]:
        """All methods, one or more."""
        return self.method if isinstance(self.method, list) else [self.method]

    def make_methods(self) -> dict[str, Method]:
        """Build each method with the settings that it knows; one that none of them knows is refused."""
        given = {key: _value(key, value) for key, value in self.settings.items()} | dict(self.options)
        made: dict[str, Method] = {}
        left = set(given)
        for name in self.methods:
            known = {key: given[key] for key in given if key == "schedule" and name != "auto"}
            known |= {key: value for key, value in given.items() if _takes(make_method(name, known), key, value)}
            made[name] = make_method(name, known)
            left -= set(known)
        for key in left:  # ask again, for the message that names the nearest
            make_method(self.methods[-1], {k: given[k] for k in given if k in ("schedule", key)})
        return made

    def common(self, exclude: Sequence[str] | None = None) -> dict[str, Any]:
        """Return what a `Surgery` takes, a target's own `exclude` where the recipe names nothing."""
        given = {key: getattr(self, key) for key in ("include", "exclude", "seed", "device")}
        named = given["include"] is not None or given["exclude"] is not None
        return given if named else given | {"exclude": exclude}

    def to_yaml(self) -> str:
        """Return the whole recipe, defaults and all, with the settings of methods at the top level."""
        values = self.model_dump()
        return yaml.dump(values | values.pop("settings"), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _takes(method: Method, key: str, value: Any) -> bool:
    try:
        make_method(method, {key: value})
    except UnknownSettingError:
        return False
    return True


def _value(key: str, value: Any) -> Any:
    """Return a setting as the methods take it."""
    if key == "dtype" and isinstance(value, str):
        found = getattr(torch, value, None)
        if not isinstance(found, torch.dtype) or not found.is_floating_point:
            raise RecipeError(f"dtype must be float32, bfloat16, float16 or float64, got {value!r}")
        return found
    if key == "schedule" and isinstance(value, dict):
        known = [field.name for field in dataclasses.fields(Stages)]
        for name in value:
            if name not in known:
                raise RecipeError(f"schedule: unknown key {name!r}; a schedule has: {', '.join(known)}")
        return Stages(**value)
    return value


OWN_KEYS = tuple(key for key in Recipe.model_fields if key != "settings")
KEYS = (*OWN_KEYS, *SETTINGS)


def make_recipe(values: dict[str, Any], origin: str = "recipe") -> Recipe:
    """Check values by name and make a recipe of them."""
    for key in values:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else "a selection's own settings go under `options`."
            raise RecipeError(f"{origin}: unknown key {key!r}; {hint} The keys are: {', '.join(KEYS)}")
    own = {key: value for key, value in values.items() if key in OWN_KEYS}
    for key in ("method", "sparsity"):  # one that is named twice is tried once
        if isinstance(own.get(key), list):
            own[key] = [value for k, value in enumerate(own[key]) if value not in own[key][:k]]
    settings = {key: value for key, value in values.items() if key in SETTINGS and value is not None}
    if own.get("goal") is not None:
        _check_goal(own, origin)
    elif own.get("sparsity") is None and not isinstance(own.get("budget"), dict):
        own["sparsity"] = USUAL
    try:
        recipe = Recipe(**own, settings=settings)
    except ValidationError as error:
        raise RecipeError(f"{origin}: {_in_words(error, values)}") from None
    for sparsity in recipe.sparsities:
        exact_count(sparsity, 1)
    if not recipe.sparsities or not recipe.methods:
        raise RecipeError(f"{origin}: give at least one method and one sparsity")
    try:
        recipe.make_methods()
    except RecipeError:
        raise
    except BrainsurgeonError as error:
        raise RecipeError(f"{origin}: {error}") from None
    except TypeError as error:
        raise RecipeError(f"{origin}: a setting has a value of the wrong kind: {error}") from None
    return recipe


def _check_goal(own: dict[str, Any], origin: str) -> None:
    """Refuse a goal that means nothing, and one beside a sparsity or a sweep."""
    if own.get("sparsity") is not None or own.get("sweep"):
        raise RecipeError(
            f"{origin}: give a sparsity, several (a sweep), or a goal, which finds its own; not two of them"
        )
    goal, known = own["goal"], [field.name for field in dataclasses.fields(Goal) if field.name != "validation"]
    if not isinstance(goal, dict) or (wrong := [str(name) for name in goal if name not in known]):
        what = f"unknown key {wrong[0]!r}" if isinstance(goal, dict) else f"{goal!r:.60} is none"
        raise RecipeError(f"{origin}: goal: {what}; a goal has: {', '.join(known)}")
    try:
        Goal(**goal)
    except BrainsurgeonError as error:
        raise RecipeError(f"{origin}: goal: {error}") from None


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the values in a YAML or TOML file; the paths in it are relative to its folder."""
    path = Path(path)
    if not path.is_file():
        raise RecipeError(f"there is no recipe {path}")
    if path.stat().st_size > MOST_TEXT:
        raise RecipeError(f"{path} has {path.stat().st_size:,} bytes; a recipe has {MOST_TEXT:,} at most")
    try:
        text = path.read_text()
        found = tomllib.loads(text) if path.suffix == ".toml" else read_value(text)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{path} is not valid {'TOML' if path.suffix == '.toml' else 'text'}: {error}") from None
    if not isinstance(found, dict):
        raise RecipeError(f"{path} must hold keys and values, such as `sparsity: 0.9`; it holds {found!r:.60}")
    return with_absolute_paths(found, path.parent)


def read_value(text: str) -> Any:
    """Read a value as YAML has it: 0.9, [mp, cbs], true, or a plain word; no aliases, and nothing very deep."""
    depth = 0
    try:
        for event in yaml.parse(text, _Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
                what = f"alias (*{event.anchor})" if isinstance(event, yaml.AliasEvent) else f"{depth} levels"
                raise RecipeError(f"a recipe takes no {what}: write its values out, by key")
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise RecipeError(f"{text!r:.60} is not valid YAML: {error}") from None


def with_absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the files that a recipe names from a folder, so that it means the same everywhere."""
    values = dict(values)
    spec = values.get("target")
    if isinstance(spec, str) and spec != DEMO:
        place, _, name = spec.rpartition(":")
        if place.endswith(".py"):
            values["target"] = f"{(folder / Path(place).expanduser()).resolve()}:{name}"
        elif spec.startswith(LANGUAGE):
            values["target"] = f"{LANGUAGE}{(folder / Path(spec.removeprefix(LANGUAGE)).expanduser()).resolve()}"
            if values.get("arguments"):
                values["arguments"] = with_absolute_texts(dict(values["arguments"]), folder)
    if isinstance(values.get("checkpoint"), str):
        values["checkpoint"] = str((folder / Path(values["checkpoint"]).expanduser()).resolve())
    return values


def with_absolute_texts(arguments: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the arguments of a language model that are files."""
    return {
        key: str((folder / Path(str(value)).expanduser()).resolve()) if key in TEXTS else value
        for key, value in arguments.items()
    }


def _in_words(error: ValidationError, values: dict[str, Any]) -> str:
    """Return what is wrong, key by key; where a value may be of several kinds, each kind's complaint once."""
    complaints: dict[str, list[str]] = {}
    for problem in error.errors():
        message = "is missing" if problem["type"] == "missing" else problem["msg"].replace("Input should", "should")
        complaints.setdefault(str(problem["loc"][0]), []).append(message)
    return "; ".join(
        f"{key} {' or '.join(dict.fromkeys(messages))}" + (f", got {values[key]!r:.60}" if key in values else "")
        for key, messages in complaints.items()
    )
