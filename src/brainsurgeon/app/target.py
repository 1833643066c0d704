"""What a user brings: a model, its data and its loss, made by a function of theirs and named on the command line.

`file.py:function` or `module:function` names it; it may return

* a tuple `(model, data)`, `(model, data, loss)` or `(model, data, loss, test)`,
* a dict with the names of `Target`'s fields, or
* a `Target`.

`hf:FOLDER` names a language model in a local Hugging Face folder, with a text file to calibrate on; `demo` stands for
the network and the digits that come with the package. Nothing here imports PyTorch before a
function is called.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import importlib.util
import random
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import BrainsurgeonError

if TYPE_CHECKING:
    from torch import nn

    from brainsurgeon.network.evaluate import Score
    from brainsurgeon.network.loss import LossLike

DEMO = "demo"
LANGUAGE = "hf:"
"""Before the folder of a language model; the text to calibrate on comes with the arguments."""
FORM = "file.py:function or module:function"


class TargetError(BrainsurgeonError):
    """A model function that cannot be found, or returns what cannot be pruned."""


@dataclass(frozen=True)
class Target:
    """A model to prune, the training samples to prune it with, and how to tell what that cost.

    `test` is held-out data, of any kind that `data` may be, on which the loss and what it suggests are reported (of
    classes accuracy, of labels accuracy and F1, of numbers R²); it is never used to choose anything. `score` names one
    or several metrics instead, or is a function of the model, or of outputs and targets, as `brainsurgeon.evaluate`
    takes it.
    `exclude` names what is left alone where the user names nothing. `validation` is data that may be chosen on: goals
    and sweeps judge networks there; without it they hold some of the training samples out.
    """

    model: nn.Module
    data: Any
    loss: LossLike = "cross_entropy"
    test: Any = None
    score: Score = None
    exclude: tuple[str, ...] | None = None
    validation: Any = None


def load_target(
    spec: str,
    arguments: Mapping[str, Any] | None = None,
    checkpoint: str | Path | None = None,
    seed: int = 0,
    place: Path | None = None,
) -> Target:
    """Call the function that `spec` names, with keyword arguments, and load a checkpoint into its model if given.

    `place` is a new folder for a language model that stays on disk; without one it can be looked at alone.

    Python's and PyTorch's global generators are seeded first, so that a function which draws without a generator of
    its own, and a shuffling loader, do the same each time.
    """
    function = _demo if spec == DEMO else partial(_language, spec, place) if spec.startswith(LANGUAGE) else _find(spec)
    seed_globals(seed)
    try:
        made = function(**(arguments or {}))
    except BrainsurgeonError:
        raise
    except (Exception, SystemExit) as error:  # a script may end the process, which would look like success
        raise TargetError(f"{spec} failed{_where(error)}: {type(error).__name__}: {error}") from error
    target = _as_target(made, spec)
    if checkpoint is not None:
        from brainsurgeon.files.checkpoint import load_checkpoint

        load_checkpoint(target.model, checkpoint)
    return _with_dense(target)


def _with_dense(target: Target) -> Target:
    """Bind the distance from the dense outputs to the model as it is now, for whatever is asked of it later."""
    import torch

    from brainsurgeon.network.match import bound_loss
    from brainsurgeon.network.modes import for_examination
    from brainsurgeon.samples.batches import replayable

    data = replayable(target.data)
    device = next((parameter.device for parameter in target.model.parameters()), torch.device("cpu"))
    loss = bound_loss(target.loss, data, lambda: for_examination(copy.deepcopy(target.model), device), device)
    return replace(target, loss=loss, data=data)


def _demo() -> Target:
    from brainsurgeon.paper.datasets.embedded import load_demo

    model, data = load_demo()
    return Target(model, data.train(), "cross_entropy", data.test())


def _language(
    spec: str,
    place: Path | None,
    text: str | None = None,
    test_text: str | None = None,
    window: int = 1024,
    samples: int = 128,
    on_disk: bool = False,
) -> Target:
    """Return a language model from a local folder, calibrated on the first windows of a text."""
    from brainsurgeon.files.language import head_of, load_language_model, perplexity, read_tokens

    if text is None:
        raise TargetError(f"{spec} needs a text to calibrate on: give --text FILE")
    model, tokenizer = load_language_model(spec.removeprefix(LANGUAGE), on_disk=(place or True) if on_disk else None)
    data = read_tokens(tokenizer, text, window)[:samples]
    score = None
    if test_text is not None:
        test = read_tokens(tokenizer, test_text, window)

        def score(model: nn.Module) -> dict[str, float]:
            return {f"perplexity, windows of {window}": perplexity(model, test)}

    return Target(model, data, "next_token", score=score, exclude=head_of(model))


def seed_globals(seed: int) -> None:
    """Seed the global generators of Python, NumPy and PyTorch, which a user's function or loader may draw from."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def _find(spec: str) -> Callable[..., Any]:
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise TargetError(f"expected {FORM}, or {DEMO}, got {spec!r}")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise TargetError(f"{place} has no function {name!r}.{_nearest(name, known)}")
    function = getattr(module, name)
    if not callable(function):
        raise TargetError(f"{spec} must be a function that returns model, data and loss, got {type(function).__name__}")
    _refuse_standard(str(getattr(function, "__module__", None) or "builtins"), spec)
    return function


def _refuse_standard(module: str, spec: str) -> None:
    """Refuse what Python itself brings along: nothing there makes a model, and much there runs commands."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise TargetError(
            f"{spec} is of Python's own library ({module}), which makes no model: name a function of yours, as {FORM}"
        )


def _import_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise TargetError(f"there is no file {path}")
    name = f"brainsurgeon_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    _look_in(path.parent)
    sys.modules[name] = module  # what it defines must be found again by loaders' workers
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise TargetError(f"{path.name} cannot be imported{_where(error)}: {type(error).__name__}: {error}") from error
    return module


def _import_module(name: str) -> ModuleType:
    _refuse_standard(name, name)
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"module {name!r} cannot be imported{_where(error)}: {type(error).__name__}: {error} (give {FORM})"
        ) from error


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _as_target(made: Any, spec: str) -> Target:
    from torch import nn

    from brainsurgeon.network.evaluate import metric_names

    names = [field.name for field in fields(Target)]
    if isinstance(made, Mapping):
        for key in made:
            if key not in names:
                raise TargetError(f"{spec} returned an unknown {key!r}.{_nearest(str(key), names)}")
        made = {"data": None, **made}
        if "model" not in made:
            raise TargetError(f"{spec} returned a dict without a 'model'; it may hold {', '.join(names)}")
        made = Target(**made)
    elif isinstance(made, tuple | list) and 2 <= len(made) <= 4:
        made = Target(*made)
    if not isinstance(made, Target):
        raise TargetError(
            f"{spec} must return (model, data), (model, data, loss), (model, data, loss, test), or a dict of "
            f"{', '.join(names)}; it returned {_describe(made)}"
        )
    if not isinstance(made.model, nn.Module):
        raise TargetError(f"{spec} must return a torch.nn.Module as model, got {type(made.model).__name__}")
    metric_names(made.score)  # an unknown one is refused before any work
    return made


def _describe(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} It has: {', '.join(known[:12])}" if known else hint


def _where(error: BaseException) -> str:
    """Return the innermost line of the user's own file or of what it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<frozen")]
    return f" in {Path(here[0].filename).name}, line {here[0].lineno}" if here else ""
