"""What `prune` and `compare` share: start or resume a run, show how it goes, say where it is."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from brainsurgeon.app.cli.show import say

if TYPE_CHECKING:
    from brainsurgeon.app.recipe import Recipe
    from brainsurgeon.app.runs import Cell, RunFolder
    from brainsurgeon.events import Callback

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def start(
    kind: str, recipe: "Recipe | None", output: Path | None, resume: Path | None, trust: bool = False
) -> "RunFolder":
    """Make the folder of a new run, with the number of threads written down, or open that of an old one."""
    import torch

    from brainsurgeon.app.runs import RunFolder

    if resume is not None:
        if not trust:
            check_resumed(resume, trust)
        return RunFolder.open(resume)
    assert recipe is not None
    full = recipe.model_copy(update={"threads": recipe.threads or torch.get_num_threads()})
    return RunFolder.create(full, output, kind)


def check_resumed(folder: Path, trust: bool) -> None:
    """Refuse to go on with a run whose code is not the user's own, unless it is trusted."""
    from brainsurgeon.app.runs import RunFolder
    from brainsurgeon.app.trust import check_trusted

    run = RunFolder.open(folder)
    check_trusted(run.path, run.recipe.target, trust)


def carry_out(run: "RunFolder", kind: str, track: list[str] | None, quiet: bool) -> "list[Cell]":
    """Do what is left of a run, with bars or log lines; an interruption says how to go on."""
    from brainsurgeon.app.runs import execute

    errors = Console(stderr=True)
    if not quiet:
        say(errors, f"Run folder: {run.path}")
    try:
        with _told(run, track or [], quiet, errors) as callback:
            try:
                return execute(run, callback)
            except KeyboardInterrupt:
                say(errors, f"\nGo on with: brainsurgeon {kind} --resume {run.path}")
                raise
    except Exception:
        if run.fresh and not run.facts():  # it failed before anything was done: there is nothing to go on with
            run.discard()
        raise


@contextmanager
def _told(run: "RunFolder", track: list[str], quiet: bool, errors: Console) -> "Iterator[Callback]":
    """Give the callback of a run: the log in its folder, bars on a terminal or else lines, and trackers."""
    from brainsurgeon.app.trackers import combined, log_lines
    from brainsurgeon.app.trackers import track as open_trackers
    from brainsurgeon.events.progress import bars

    log = logging.getLogger("brainsurgeon")
    handler = logging.FileHandler(run.path / "log.txt")
    handler.setFormatter(logging.Formatter(FORMAT))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.info("start: %s", " ".join(sys.argv))
    try:
        with open_trackers(track, run.path, run.recipe.model_dump()) as trackers:
            callbacks = [log_lines(log.info), *trackers]
            if quiet:
                yield combined(*callbacks)
            elif errors.is_terminal:
                with bars(errors) as draw:
                    yield combined(draw, *callbacks)
            else:
                yield combined(log_lines(lambda text: print(text, file=sys.stderr, flush=True)), *callbacks)
        log.info("done")
    except BaseException as error:
        log.error("stopped: %s: %s", type(error).__name__, error)
        raise
    finally:
        log.removeHandler(handler)
        handler.close()
        log.setLevel(level)
