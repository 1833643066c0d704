"""Where else the events of a run can go: log lines, TensorBoard, Weights & Biases, MLflow.

Each tracker is a context manager that gives a callback; `combined` makes one callback of several. The packages are
extras, imported when a tracker is opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event

log = logging.getLogger(__name__)

Tracker = Callable[[Path, Mapping[str, Any]], AbstractContextManager[Callback]]
"""From the folder of a run and its settings to a callback that lives as long as the run."""


def log_lines(write: Callable[[str], None], every: float = 10.0) -> Callback:
    """Give a callback that writes a line when a stage begins and first ends, and every few seconds at most."""
    written: dict[str, float] = {}
    started: dict[str, tuple[float, int]] = {}
    last: dict[str, int] = {}
    ended: set[str] = set()

    def tell(event: Event) -> None:
        name, now = f"{event.label} {event.stage}".strip(), time.monotonic()
        if event.done < last.get(name, event.done + 1):  # it begins, or begins once more
            started[name] = (now, event.done if event.done > 1 else 0)
        last[name] = event.done
        over = event.total is not None and event.done >= event.total
        if name in written and now - written[name] < every and (not over or name in ended):
            return
        if over:
            ended.add(name)
        written[name] = now
        since, first = started[name]
        write(line(event, now - since, event.done - first))

    return tell


def line(event: Event, seconds: float = 0.0, since: int = 0) -> str:
    """Return an event as a line of text, with the time left where it can be told from `since` units in `seconds`."""
    name = f"{event.label} {event.stage}".strip()
    share = f"{event.done:,}" + (f" of {event.total:,}" if event.total is not None else "")
    values = ", ".join(f"{key} {_shown(value)}" for key, value in event.values.items())
    left = ""
    if seconds >= 1 and since > 0 and event.total and event.done < event.total:
        left = f" ({since / seconds:.3g}/s, {seconds * (event.total - event.done) / since:.0f} s left)"
    return f"{name}: {share}{left}" + (f": {values}" if values else "")


def _shown(value: float | str) -> str:
    return value or "none" if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def combined(*callbacks: Callback) -> Callback:
    """Return one callback that passes each event on to all."""

    def tell(event: Event) -> None:
        for callback in callbacks:
            callback(event)

    return tell


@contextmanager
def track(names: list[str], folder: Path, settings: Mapping[str, Any]) -> Iterator[list[Callback]]:
    """Open trackers by name, for as long as the run lasts."""
    for name in names:
        if name not in TRACKERS:
            raise BrainsurgeonError(f"unknown tracker {name!r}; the trackers are: {', '.join(TRACKERS)}")
    with ExitStack() as stack:
        yield [_opened(stack, name, folder, settings) for name in names]


def _opened(stack: ExitStack, name: str, folder: Path, settings: Mapping[str, Any]) -> Callback:
    try:
        return _guarded(name, stack.enter_context(TRACKERS[name](folder, settings)))
    except BrainsurgeonError:
        raise
    except Exception as error:  # each package has its own kinds: not logged in, no such server, …
        raise BrainsurgeonError(f"{name} could not be opened: {error}") from error


def _guarded(name: str, callback: Callback) -> Callback:
    """Let a tracker that fails on the way (a lost connection) go, with a warning: hours of work are worth more."""
    working = True

    def tell(event: Event) -> None:
        nonlocal working
        if working:
            try:
                callback(event)
            except Exception as error:
                working = False
                log.warning("%s failed and gets no more events: %s", name, error)

    return tell


@contextmanager
def tensorboard(folder: Path, settings: Mapping[str, Any]) -> Iterator[Callback]:
    """Write scalars for TensorBoard into the run's folder."""
    _needed("tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard")) as writer:
        writer.add_text("recipe", "\n".join(f"    {key}: {value}" for key, value in settings.items()))
        yield _numbered(lambda name, value, step: writer.add_scalar(name, value, step))


@contextmanager
def wandb(folder: Path, settings: Mapping[str, Any]) -> Iterator[Callback]:
    """Log to Weights & Biases, as the environment (WANDB_MODE, WANDB_PROJECT, …) says."""
    package = _needed("wandb", "wandb")
    run = package.init(name=folder.name, dir=str(folder), config=dict(settings))
    try:
        yield _numbered(lambda name, value, step: run.log({name: value}))
    finally:
        run.finish()


@contextmanager
def mlflow(folder: Path, settings: Mapping[str, Any]) -> Iterator[Callback]:
    """Log to MLflow, as the environment (MLFLOW_TRACKING_URI, …) says."""
    package = _needed("mlflow", "mlflow")
    with package.start_run(run_name=folder.name):
        package.log_params({key: str(value)[:500] for key, value in settings.items()})
        # It takes letters, digits, spaces and a few signs, but no @.
        yield _numbered(lambda name, value, step: package.log_metric(name.replace("@", " at "), value, step=step))


TRACKERS: dict[str, Tracker] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}


def _numbered(log: Callable[[str, float, int], None]) -> Callback:
    """Count the values of each name: a stage that comes again goes on where it was."""
    steps: dict[str, int] = {}

    def tell(event: Event) -> None:
        numbers = {key: value for key, value in event.values.items() if isinstance(value, int | float)}
        for key, value in numbers.items():
            name = "/".join(part for part in (event.label, event.stage, key) if part)
            steps[name] = steps.get(name, 0) + 1
            log(name, float(value), steps[name])

    return tell


def _needed(package: str, extra: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise BrainsurgeonError(f"tracking with {package} needs it: pip install 'brainsurgeon[{extra}]'") from error
