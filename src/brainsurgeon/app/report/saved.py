"""What a run left on disk, checked before a word of it is shown: result.json, measured.json and run.json."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from brainsurgeon.errors import BrainsurgeonError

LARGEST = 1e100
"""Numbers beyond this have no place on an axis; a diverged loss of float32 is far below."""


def _printable(words: str) -> str:
    """Replace what has no shape of its own (line ends, terminal codes, marks that turn the reading direction)."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in words)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Words = Annotated[str, AfterValidator(_printable)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Seconds = Annotated[float, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Score = Annotated[Number | None, BeforeValidator(_finite)]
"""A number, or None where it was not finite."""


class Saved(BaseModel):
    """What is read from a file, and never changes."""

    model_config = ConfigDict(frozen=True, strict=True)


class Layer(Saved):
    """The count of one layer."""

    name: Words
    shape: tuple[Count, ...] = ()
    pruned: Count
    size: Annotated[Count, Field(ge=1)]

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.pruned > self.size:
            raise ValueError(f"{self.pruned} of {self.size} weights cannot be pruned")
        return self


class Step(Saved):
    """What was told on the way."""

    stage: str
    done: Number
    loss: Score = None
    pruned: Score = None
    cost: Score = None
    swaps: Score = None


class Result(Saved):
    """result.json: the record of one pruning; a loss is None where there was no data, or it was not finite."""

    method: Words
    sparsity: Annotated[float, Field(ge=0, le=1)]
    pruned: Count
    size: Count
    loss_before: Score = None
    loss_after: Score = None
    seconds: dict[Words, Seconds]
    settings: dict[Words, Any]
    notes: tuple[Words, ...] = ()
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]
    trace: tuple[Step, ...] = ()

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        found = sum(layer.pruned for layer in self.layers), sum(layer.size for layer in self.layers)
        if found != (self.pruned, self.size):
            raise ValueError(
                f"the layers count {found[0]} of {found[1]} weights, the record {self.pruned} of {self.size}"
            )
        return self


class Histogram(Saved):
    """Weights before, and those kept, in bins from -reach to reach."""

    name: Words
    reach: Annotated[float, Field(gt=0, le=LARGEST)]
    before: Annotated[tuple[Count, ...], Field(min_length=1)]
    after: Annotated[tuple[Count, ...], Field(min_length=1)]


class Latency(Saved):
    """The time of a batch in one runtime; None where it could not be measured."""

    runtime: Words
    milliseconds: Score = None


class Cost(Saved):
    """What a model takes on disk and to run, as far as it was measured; multiply-adds and times are of a batch."""

    bytes_dense: Count | None = None
    bytes_compressed: Count | None = None
    multiply_adds: Count | None = None
    multiply_adds_sparse: Count | None = None
    batch: Count | None = None
    latencies: tuple[Latency, ...] = ()


class Measured(Saved):
    """measured.json: what was measured of a pruned model."""

    scores: dict[Words, Score] = {}
    histograms: tuple[Histogram, ...] = ()
    cost: Cost = Cost()


class Facts(Saved):
    """run.json: what all results of a run share."""

    model: str | None = None
    dense: dict[Words, Score] = {}
    versions: dict[Words, Words] = {}


Kind = TypeVar("Kind", bound=Saved)


def read(kind: type[Kind], path: Path) -> Kind:
    """Read a file, or say in one sentence what is wrong with it."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BrainsurgeonError(
            f"{path} is damaged or was altered: {where + ': ' if where else ''}{first['msg']}. Restore it, or run again"
        ) from error
