"""Finished steps of a run, kept on disk under the digest of everything that they depend on.

A selection or an update is a function of the problem it is given. Its outcome is written, whole or not at all, under a
name made of the weights, the curvature, the budget, the state of the generator and its own settings; whoever asks the
same again, a resumed run or another method with the same selection, gets it from disk. A digest that does not match is
never wrong, it only means that the step is done again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import save_tensors
from ..events import Event
from ..methods import Method
from ..problem import Problem, Selection, Update
from ..quadratic import QuadraticModel

GENERATOR = "generator"
RECORD = "record"


def _takes_time(part: Any) -> bool:
    return getattr(part, "uses_curvature", True) or getattr(part, "uses_loss", True)


def digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()


class Steps:
    """The finished steps in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._curvatures: dict[int, tuple[QuadraticModel, str]] = {}

    def keeping(self, method: Method) -> Method:
        """Return the method with every step of it kept."""
        said = method.describe()
        selection, *rivals = (
            _KeptSelection(self, part, its) if _takes_time(part) else part
            for part, its in zip((method.selection, *method.rivals), (said["selection"], *said["rivals"]), strict=True)
        )
        update = _KeptUpdate(self, method.update, said["update"]) if _takes_time(method.update) else method.update
        return Method(method.name, selection, update, tuple(rivals))

    def clear(self) -> None:
        """Forget all: the results hold what they said."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def step(self, kind: str, said: Any, problem: Problem, make: Callable[[Problem], Tensor], *given: Tensor) -> Tensor:
        """Return the outcome of a step: from disk, or made and put there."""
        path = self.folder / f"{kind}-{self._key(said, problem, given)}.safetensors"
        if path.is_file():
            return _replay(path, kind, problem)
        events: list[Event] = []

        annotated = getattr(problem.maybe_judge, "annotated", lambda event: event)

        def notify(event: Event) -> None:
            events.append(annotated(event))
            problem.notify(event)

        before, start = dict(problem.clock.seconds), time.perf_counter()
        made = make(dataclasses.replace(problem, notify=notify))
        seconds = {key: value - before.get(key, 0.0) for key, value in problem.clock.seconds.items()}
        seconds = {key: value for key, value in seconds.items() if value}
        seconds[kind] = time.perf_counter() - start - sum(v for k, v in seconds.items() if k != kind)
        record = {"events": [dataclasses.asdict(event) for event in events], "seconds": seconds}
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {kind: made, GENERATOR: problem.generator.get_state()}
        save_tensors(tensors, path, {RECORD: json.dumps(record)})
        return made

    def _key(self, said: Any, problem: Problem, given: tuple[Tensor, ...]) -> str:
        parts = [
            json.dumps(said, sort_keys=True),
            digest(problem.weights),
            self._curvature(problem.maybe_quadratic),
            *map(digest, problem.budget.groups),
            str(problem.budget.counts),
            digest(problem.generator.get_state()),
            *map(digest, given),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]

    def _curvature(self, quadratic: QuadraticModel | None) -> str:
        """Return the digest of H w̄: it changes with any of the gradients."""
        if quadratic is None:
            return "none"
        if id(quadratic) not in self._curvatures:
            product = quadratic.product(quadratic.w)
            self._curvatures[id(quadratic)] = (quadratic, digest(product))
        return self._curvatures[id(quadratic)][1]


def _replay(path: Path, kind: str, problem: Problem) -> Tensor:
    """Read a finished step, and tell of it as if it had just been done."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        made, state = file.get_tensor(kind), file.get_tensor(GENERATOR)
        record = json.loads(file.metadata()[RECORD])
    problem.generator.set_state(state)
    for event in record["events"]:
        problem.notify(Event(**event))
    for key, value in record["seconds"].items():
        problem.clock.seconds[key] = problem.clock.seconds.get(key, 0.0) + value
    return made.to(problem.weights.device)


class _KeptSelection:
    def __init__(self, steps: Steps, inner: Selection, said: Any):
        self._steps, self._inner, self._said = steps, inner, said
        self.uses_curvature = getattr(inner, "uses_curvature", True)

    def __call__(self, problem: Problem) -> Tensor:
        return self._steps.step("selection", self._said, problem, self._inner)


class _KeptUpdate:
    def __init__(self, steps: Steps, inner: Update, said: Any):
        self._steps, self._inner, self._said = steps, inner, said
        self.uses_curvature = getattr(inner, "uses_curvature", True)

    def __call__(self, problem: Problem, pruned: Tensor) -> Tensor:
        def make(problem: Problem) -> Tensor:
            return self._inner(problem, pruned)

        return self._steps.step("update", self._said, problem, make, pruned)
