"""Whose run this is: a folder that names code to run is believed only where this user made it.

A run's recipe names the function that makes its model. Its text is signed with a key of the user's own, made once and
kept in their state folder; a folder that came from elsewhere has no such signature, and its code is not imported
unless the user says so, by `--trust` or by naming the target themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from brainsurgeon.app.target import DEMO, LANGUAGE
from brainsurgeon.errors import BrainsurgeonError

SIGNATURE = ".signature"
RECIPE = "recipe.yaml"
KEY_BYTES = 32


class NotTrustedError(BrainsurgeonError):
    """A file from elsewhere that names code to run."""


def sign(folder: Path, name: str = RECIPE) -> None:
    """Sign the recipe of a run that this user has just made; without a key nothing is signed."""
    key = _key(make=True)
    if key is not None:
        (folder / SIGNATURE).write_text(_signature(key, folder / name))


def is_ours(folder: Path, name: str = RECIPE) -> bool:
    """Say whether the recipe in a folder, or another file that names code, is one that this user made, unchanged."""
    key = _key(make=False)
    try:
        given = (folder / SIGNATURE).read_text().strip()
        return key is not None and given.isascii() and hmac.compare_digest(given, _signature(key, folder / name))
    except (OSError, UnicodeDecodeError):
        return False


def names_code(spec: str) -> bool:
    """Say whether a target is a function to import; `demo` and the folder of a language model are none."""
    return spec != DEMO and not spec.startswith(LANGUAGE)


def check_trusted(folder: Path, spec: str, trusted: bool, remedy: str = "", name: str = RECIPE) -> None:
    """Refuse to import what a folder names unless it is the user's own, harmless, or trusted by them."""
    if trusted or not names_code(spec) or is_ours(folder, name):
        return
    raise NotTrustedError(
        f"{folder} was not made by you here, and running it would import code that it names ({spec}): look at its "
        f"{name}, then {remedy}give --trust"
    )


def _signature(key: bytes, path: Path) -> str:
    return hmac.new(key, path.read_bytes(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """Return the user's key; None where there is none and none can be made."""
    path = _state() / "key"
    with contextlib.suppress(OSError):
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
    if not make:
        return None
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"key.{os.getpid()}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)  # of two that start at once, one wins
        temporary.unlink()
        return path.read_bytes()
    return None


def _state() -> Path:
    """Return where a program keeps what belongs to its user on this machine."""
    home = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(home) if home else Path.home() / ".local" / "state") / "brainsurgeon"
