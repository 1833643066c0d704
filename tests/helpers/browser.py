"""A real browser, where there is one: headless Chromium, driven from its command line."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=3000",
    "--enable-logging=stderr",
    "--v=0",
)


@dataclass(frozen=True)
class Shown:
    """A page as the browser has it, and what it had to complain of."""

    dom: str
    complaints: list[str]


def browse(page: Path, *flags: str) -> Shown:
    """Open a page, let its script run, and return its elements."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    return Shown(done.stdout, re.findall(r".*CONSOLE.*", done.stderr))


def photograph(page: Path, picture: Path, width: int, height: int, *flags: str) -> None:
    """Take a screenshot."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                str(CHROMIUM),
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                *flags,
                f"--screenshot={picture}",
                page.as_uri(),
            ],
            capture_output=True,
            timeout=120,
            check=True,
        )
