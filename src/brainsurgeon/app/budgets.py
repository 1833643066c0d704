"""Budgets on the command line: a word, a file that a user may have edited, or targets of single layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brainsurgeon.app.recipe import RecipeError, read_value

WORDS = ("global", "uniform")
LARGEST = 1 << 24
"""Bytes of a file; a line for each of a hundred thousand layers is less."""


def read_budgets(given: Sequence[str]) -> str | dict[str, float]:
    """Read what `--budget` was given, once or several times: a word alone, or files and `pattern=sparsity` pairs.

    The first pattern that means a layer counts, so single targets come before files: they change what a file says.
    """
    if any(text in WORDS for text in given):
        if len(given) > 1:
            raise RecipeError(f"--budget {given[0]} stands alone, or give files and targets: --budget 'fc*=0.95'")
        return given[0]
    pairs: dict[str, float] = {}
    files: dict[str, float] = {}
    for text in given:
        if Path(text).is_file():
            files |= {name: value for name, value in read_budget(Path(text)).items() if name not in files}
        else:
            pairs |= _pairs(text)
    return pairs | {name: value for name, value in files.items() if name not in pairs}


def read_budget(path: Path) -> dict[str, float]:
    """Read {layer: sparsity} from YAML or JSON, alone or under the key `budget`, as `Sensitivity.save` writes it."""
    if path.stat().st_size > LARGEST:
        raise RecipeError(f"{path} has {path.stat().st_size:,} bytes; a budget has {LARGEST:,} at most")
    try:
        found = read_value(path.read_text())
    except (RecipeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: {error}") from None
    if isinstance(found, Mapping) and isinstance(found.get("budget"), Mapping):
        found = found["budget"]
    if not isinstance(found, Mapping) or not found:
        raise RecipeError(f"{path} must hold layers and their sparsities, such as `conv1.weight: 0.5`")
    return {str(name): _share(str(name), value, str(path)) for name, value in found.items()}


def _pairs(text: str) -> dict[str, float]:
    found = {}
    for pair in text.split(","):
        name, equals, value = pair.rpartition("=")
        if not equals or not name.strip():
            raise RecipeError(
                f"--budget takes global, uniform, a file, or targets such as 'conv1=0.5,fc*=0.95'; got {text!r}, which "
                "is no file that is there and holds no pair"
            )
        found[name.strip()] = _share(name.strip(), read_value(value), "--budget")
    return found


def _share(name: str, value: Any, origin: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RecipeError(f"{origin}: the sparsity of {name!r} must be a number from 0 to 1, got {value!r}")
    return float(value)
