"""What every file that we write has in common: it appears whole or not at all, and JSON has a word for its numbers."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from brainsurgeon.errors import BrainsurgeonError

LONGEST = 100
"""Characters of a file name, at most."""


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that appears whole or not at all; nothing else is left where it fails."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        if isinstance(content, str):
            temporary.write_text(content)
        else:
            temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Make a folder and write to it, so that a place that cannot be written to is known before the work."""
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"\0" * 4096)
        probe.unlink()
    except OSError as error:
        raise BrainsurgeonError(
            f"cannot write to {folder}: {error.strerror or error}; give another place with --output"
        ) from error


def plain(value: Any) -> Any:
    """Return a value as JSON takes it: numbers of any kind, null for those it has no word for, words for the rest."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)


def safe_names(names: Iterable[str]) -> list[str]:
    """Return a file name for each: ASCII letters, digits and `+-._` alone, and no two the same in any case."""
    taken: set[str] = set()
    safe = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9+._-]", "_", name.replace(" ", "-"))[:LONGEST].lstrip(".") or "unnamed"
        found, number = plain, 1
        while found.lower() in taken:
            number += 1
            found = f"{plain}-{number}"
        taken.add(found.lower())
        safe.append(found)
    return safe
