"""Where a report writes: files of harmless names, made anew inside its folder, never through a link out of it."""

from __future__ import annotations

from pathlib import Path

from brainsurgeon.errors import BrainsurgeonError


def subfolder(folder: Path, name: str) -> Path:
    """Return a folder inside another, made where it is missing."""
    path = folder / name
    if path.is_symlink():
        raise BrainsurgeonError(
            f"{path} is a link to {path.readlink()}, and a report is written into its own folder alone: "
            "remove the link, or give another folder with --output"
        )
    path.mkdir(parents=True, exist_ok=True)
    return path


def put(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file that appears whole, in place of whatever (a link too) had its name."""
    path, temporary = folder / name, folder / f".{name}.tmp"
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:  # made here: a link of this name is not followed
            file.write(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
