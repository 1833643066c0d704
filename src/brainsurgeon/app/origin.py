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
    seed, checkpoint = 0, None
    if (source / RECIPE).is_file():
        recipe = make_recipe(read_recipe(source / RECIPE), str(source / RECIPE))
        spec, arguments, seed = recipe.target, dict(recipe.arguments or {}), recipe.seed
        checkpoint = recipe.checkpoint
    elif target is None:
        spec, arguments, seed, checkpoint = read_origin(source)
    if target is not None:
        spec = with_absolute_paths({"target": target}, Path.cwd())["target"]
    told = {"target": spec, "arguments": arguments, "seed": seed, "checkpoint": checkpoint}
    write_whole(place / ORIGIN, json.dumps(told, indent=2))
    sign(place, ORIGIN)


def read_origin(folder: Path) -> tuple[str, dict[str, Any], int, str | None]:
    """Return the target, its arguments, its seed, and the checkpoint that the dense model was read from, if any."""
    path = folder / ORIGIN
    try:
        told = json.loads(path.read_text())
        spec, arguments, seed = told["target"], told["arguments"], told["seed"]
        checkpoint = told.get("checkpoint")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrainsurgeonError(f"{path} is damaged ({type(error).__name__}): name the target with --target") from error
    sound = isinstance(spec, str) and isinstance(arguments, dict) and isinstance(seed, int)
    if not sound or not isinstance(checkpoint, str | None):
        raise BrainsurgeonError(f"{path} is damaged: name the target with --target")
    return spec, arguments, seed, checkpoint
