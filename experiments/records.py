"""Where records are kept and how they are written: JSON, with the commit of the code that made them."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
RESULTS = ROOT / "experiments" / "results"
BENCHMARKS = RESULTS / "benchmarks"
CHECKPOINTS = ROOT / "experiments" / "checkpoints"

Record = dict[str, Any]


def commit_of(folder: Path) -> str | None:
    """Return the commit that a folder is at, with a "+" if files differ from it; None outside a clone.

    Records and pages that a run writes are no change of the code.
    """
    head = _git(folder, "rev-parse", "--short", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--", ".", ":!experiments/results", ":!docs")
    return None if head is None or changed is None else head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git on this machine
        return None
    return done.stdout.strip() if done.returncode == 0 else None


COMMIT = os.environ.get("BRAINSURGEON_COMMIT") or commit_of(ROOT)
"""Of the code that runs: it is looked up when a script starts, since files may change while it works.

A copy of the tree on another machine says by the environment variable which commit it is of.
"""


def stamped(record: Record) -> Record:
    """Return a record with the commit it was made with."""
    return {**record, "commit": COMMIT}


def command_line(module: str, arguments: Sequence[str]) -> str:
    """Return how a script was called, without paths of the machine."""
    shown = [Path(each).name if each.startswith("/") else each for each in arguments]
    return shlex.join(["python", "-m", f"experiments.{module}", *shown])


def write(path: Path, record: Record) -> None:
    """Write one record as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stamped(record), indent=1) + "\n")


def append(path: Path, record: Record) -> None:
    """Add one record as a line of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(stamped(record)) + "\n")


def read(path: Path) -> Record:
    """Return the record of a file."""
    return json.loads(path.read_text())


def read_lines(path: Path) -> list[Record]:
    """Return the records of a file, a line each; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def present(run: Record) -> Record:
    """Return a run by the present names: in runs without a commit auto is `staged`, and walks are trainings."""
    if "commit" in run:
        return run
    method = "staged" if run["method"] == "auto" else run["method"]
    return {"trainings": run.get("walks"), **run, "method": method}


def read_runs(path: Path) -> list[Record]:
    """Return the runs of a file, by the present names."""
    return [present(run) for run in read_lines(path)]


def is_done(path: Path, key: Record) -> bool:
    """Say whether a file has a line with these values."""
    return any(key.items() <= line.items() for line in read_lines(path))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
