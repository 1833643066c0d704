"""What made the model in a folder that is no run: a fine-tuned model's folder remembers it, signed as a recipe is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from brainsurgeon.app.recipe import make_recipe, read_recipe, with_absolute_paths
from brainsurgeon.app.trust import RECIPE, sign
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.writing import write_whole

ORIGIN = "target.json"


def keep_origin(place: Path, source: Path, target: str | None) -> None:
    """Write down what made the model: the target that was named, or the one that the source folder knows."""
    arguments: dict[str, Any] = {}
    seed = 0
    if (source / RECIPE).is_file():
        recipe = make_recipe(read_recipe(source / RECIPE), str(source / RECIPE))
        spec, arguments, seed = recipe.target, dict(recipe.arguments or {}), recipe.seed
    elif target is None:
        spec, arguments, seed = read_origin(source)
    if target is not None:
        spec = with_absolute_paths({"target": target}, Path.cwd())["target"]
    write_whole(place / ORIGIN, json.dumps({"target": spec, "arguments": arguments, "seed": seed}, indent=2))
    sign(place, ORIGIN)


def read_origin(folder: Path) -> tuple[str, dict[str, Any], int]:
    """Return the target, its arguments and its seed."""
    path = folder / ORIGIN
    try:
        told = json.loads(path.read_text())
        spec, arguments, seed = told["target"], told["arguments"], told["seed"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrainsurgeonError(f"{path} is damaged ({type(error).__name__}): name the target with --target") from error
    if not isinstance(spec, str) or not isinstance(arguments, dict) or not isinstance(seed, int):
        raise BrainsurgeonError(f"{path} is damaged: name the target with --target")
    return spec, arguments, seed
