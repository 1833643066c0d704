"""What every file that we write has in common: it appears whole or not at all, and JSON has a word for its numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any


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


def plain(value: Any) -> Any:
    """Replace numbers that JSON has no word for (a diverged loss) by null."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
