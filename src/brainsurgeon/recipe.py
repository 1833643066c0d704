"""A recipe: one YAML or TOML file that holds everything a run needs, checked before any work.

Its keys are those below and every setting of `brainsurgeon.Settings`, which are not written down twice. A run writes
its full recipe back, so that the same file makes the same run.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from .errors import BrainsurgeonError
from .mask import exact_count
from .methods import Method, make_method
from .schedule import Stages
from .settings import Settings
from .staged import MOST_ROWS, Effort
from .target import DEMO
from .update import Keep

Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Plain = str | int | float | bool | None


OF_STAGES = ("curvature", "max_gradients", "max_seconds", "max_samples", "recalibrate")


class _Loader(yaml.SafeLoader):
    """YAML without objects, which reads 1e-4 as the number that everyone means by it."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("+-0123456789")
)


class RecipeError(BrainsurgeonError):
    """A recipe that cannot be followed; the message says which key, and what it may be."""


class Recipe(BaseModel):
    """What to prune, how, and with which settings. Made by `read_recipe` or `make_recipe`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    arguments: dict[str, Any] = {}
    checkpoint: str | None = None
    sparsity: Share | list[Share] = 0.9
    method: str | list[str] = "cbs"
    budget: Literal["global", "uniform"] | dict[str, Share] = "global"
    update_scale: float | Literal["auto"] | None = None
    options: dict[str, Plain] = {}
    schedule: Count | dict[str, int | str] | None = None
    curvature: Literal["auto", "fisher", "gram"] | None = None
    max_gradients: Count | None = None
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    max_samples: Count | None = None
    recalibrate: bool = False
    threads: Count | None = None

    @property
    def sparsities(self) -> list[float]:
        """All sparsities, one or more."""
        return self.sparsity if isinstance(self.sparsity, list) else [self.sparsity]

    @property
    def methods(self) -> list[str]:
        """All methods, one or more."""
        return self.method if isinstance(self.method, list) else [self.method]

    def make_methods(self) -> dict[str, Method]:
        """Build each method with the options that it knows; an option that none of them knows is refused."""
        made: dict[str, Method] = {}
        left = set(self.options)
        for name in self.methods:
            plain = make_method(name, {})
            known = {key: value for key, value in self.options.items() if _takes(plain, key, value)}
            scale = self.update_scale if len(self.methods) == 1 or not isinstance(plain.update, Keep) else None
            made[name] = make_method(name, known, scale)
            left -= set(known)
        for key in left:  # ask again, for the message that names the nearest
            make_method(self.methods[-1], {key: self.options[key]})
        return made

    def in_stages(self, method: str) -> bool:
        """Say whether a method prunes in stages: all do where there is a schedule, "auto" always."""
        return self.schedule is not None or method == "auto"

    @property
    def takes_gram(self) -> bool:
        """Whether the Gram matrices of the layers' inputs are taken."""
        return any(map(self.in_stages, self.methods)) and self.curvature != "fisher"

    def stages(self) -> Stages:
        """Return the schedule of the methods that prune in stages."""
        if isinstance(self.schedule, int):
            return Stages(self.schedule, refits=self.schedule)
        known = [field.name for field in dataclasses.fields(Stages)]
        for key in self.schedule or {}:
            if key not in known:
                raise RecipeError(f"schedule: unknown key {key!r}; a schedule has: {', '.join(known)}")
        return Stages(**(self.schedule or {}))  # type: ignore[arg-type]

    def settings(self) -> Settings:
        """Return the settings of the examination."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(Settings)}
        return Settings(**{**values, "dtype": getattr(torch, values["dtype"])})

    def largest_examination(self) -> Settings:
        """Return the settings of the largest examination: a stage takes a number of gradients of its own."""
        settings, staged = self.settings(), [self.in_stages(method) for method in self.methods]
        if not any(staged):
            return settings
        share = max(1, (self.max_gradients or Effort.max_gradients) // self.stages().total)
        group = max(1, share // MOST_ROWS)
        if all(staged):
            return dataclasses.replace(settings, num_gradients=share // group, gradient_batch=group)
        return dataclasses.replace(settings, num_gradients=max(settings.num_gradients, share // group))

    def to_yaml(self) -> str:
        """Return the whole recipe, defaults and all."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)


def _takes(method: Method, key: str, value: Any) -> bool:
    try:
        make_method(method, {key: value})
    except BrainsurgeonError as error:
        if "unknown setting" in str(error):
            return False
        raise
    return True


# What is not plain in `Settings`, as it is written in a file.
_IN_A_FILE: dict[str, Any] = {
    "include": (str | list[str] | None, None),
    "exclude": (str | list[str] | None, None),
    "device": (str | None, None),
    "dtype": (Literal["float32", "bfloat16", "float16", "float64"], "float32"),
}


def _full_recipe() -> type[Recipe]:
    types = typing.get_type_hints(Settings)
    plain = {field.name: (types[field.name], field.default) for field in dataclasses.fields(Settings)}
    return create_model("Recipe", __base__=Recipe, **{**plain, **_IN_A_FILE})


_Recipe = _full_recipe()
KEYS = tuple(_Recipe.model_fields)


def make_recipe(values: dict[str, Any], origin: str = "recipe") -> Recipe:
    """Check values by name and make a recipe of them."""
    for key in values:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else "a method's own settings go under `options`."
            raise RecipeError(f"{origin}: unknown key {key!r}; {hint} The keys are: {', '.join(KEYS)}")
    try:
        recipe = _Recipe(**values)
    except ValidationError as error:
        raise RecipeError(f"{origin}: {_in_words(error, values)}") from None
    for sparsity in recipe.sparsities:
        exact_count(sparsity, 1)
    recipe.settings()
    recipe.make_methods()
    recipe.stages()
    staged = any(map(recipe.in_stages, recipe.methods))
    if staged and recipe.settings().fisher != "empirical":
        raise RecipeError(f"{origin}: fisher is for one shot: leave it out, or the schedule and method auto")
    if not staged:
        for key in OF_STAGES:
            if getattr(recipe, key):
                raise RecipeError(f"{origin}: {key} is for runs in stages: give a schedule too, or method auto")
    return recipe


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read the values in a YAML or TOML file; the paths in it are relative to its folder."""
    path = Path(path)
    if not path.is_file():
        raise RecipeError(f"there is no recipe {path}")
    try:
        text = path.read_text()
        found = tomllib.loads(text) if path.suffix == ".toml" else read_value(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not valid {'TOML' if path.suffix == '.toml' else 'YAML'}: {error}") from None
    if not isinstance(found, dict):
        raise RecipeError(f"{path} must hold keys and values, such as `sparsity: 0.9`; it holds {found!r:.60}")
    return with_absolute_paths(found, path.parent)


def read_value(text: str) -> Any:
    """Read a value as YAML has it: 0.9, [mp, cbs], true, or a plain word."""
    return yaml.load(text, _Loader)


def with_absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the files that a recipe names from a folder, so that it means the same everywhere."""
    values = dict(values)
    spec = values.get("target")
    if isinstance(spec, str) and spec != DEMO:
        place, _, name = spec.rpartition(":")
        if place.endswith(".py"):
            values["target"] = f"{(folder / Path(place).expanduser()).resolve()}:{name}"
    if isinstance(values.get("checkpoint"), str):
        values["checkpoint"] = str((folder / Path(values["checkpoint"]).expanduser()).resolve())
    return values


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
