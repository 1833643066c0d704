"""What the loss would feel of each layer, from the file that `Sensitivity.save` wrote: heat maps, a table, a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from brainsurgeon.app.report import charts
from brainsurgeon.app.report.drawing import DARK, LIGHT, Drawing, style
from brainsurgeon.app.report.forms import Table
from brainsurgeon.app.report.names import distinct
from brainsurgeon.app.report.output import put
from brainsurgeon.app.report.saved import Count, Saved, Score, Words, read
from brainsurgeon.app.report.templating import render

FILE = "sensitivity.json"
MOST_LAYERS = 300
Share = Annotated[float, Field(gt=0, lt=1)]


class Felt(Saved):
    """One layer: the change of the loss at each sparsity, predicted and measured; None where it is not finite."""

    name: Words
    size: Annotated[Count, Field(ge=1)]
    kind: Words
    predicted: tuple[Score, ...]
    measured: tuple[Score, ...] | None = None


class Survey(Saved):
    """All layers."""

    sparsities: Annotated[tuple[Share, ...], Field(min_length=1)]
    layers: Annotated[tuple[Felt, ...], Field(min_length=1)]
    loss: Score = None
    samples: Count
    correlation: Score = None
    notes: tuple[Words, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for layer in self.layers:
            if {len(layer.predicted), len(layer.measured or layer.predicted)} != {len(self.sparsities)}:
                raise ValueError(f"{layer.name} has not a change for each of {len(self.sparsities)} sparsities")
        return self

    def words(self) -> str:
        """Say on what it was measured, and how well it was predicted."""
        loss = "not finite" if self.loss is None else f"{self.loss:.4g}"
        said = f"The loss is {loss} on {self.samples:,} samples with all weights"
        agreed = (
            "" if self.correlation is None else f"; rank correlation of predicted and measured {self.correlation:.2f}"
        )
        return f"{said}{agreed}."


class File(Saved):
    """sensitivity.json: the survey, and a budget made of it."""

    sensitivity: Survey
    sparsity: Share | None = None
    budget: dict[Words, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)


def read_survey(folder: Path) -> File | None:
    """Read the survey in a folder, if there is one."""
    return read(File, folder / FILE) if (folder / FILE).is_file() else None


def heat_maps(survey: Survey) -> list[Drawing]:
    """Draw the changes predicted and, where there are any, those measured; of very many layers the most sensitive."""
    shown = sorted(survey.layers, key=lambda la: -_height(la.predicted[-1]))[:MOST_LAYERS]
    rows = [layer for layer in survey.layers if layer in shown] if len(survey.layers) > MOST_LAYERS else survey.layers
    which = "each layer" if len(rows) == len(survey.layers) else f"the {len(rows)} most sensitive layers"
    names = distinct([layer.name for layer in rows])
    drawn = [_map(f"change of the loss predicted of {which} alone", survey, rows, names, [la.predicted for la in rows])]
    if all(layer.measured is not None for layer in rows):
        changes = [layer.measured or () for layer in rows]
        drawn.append(_map(f"change of the loss measured of {which} alone", survey, rows, names, changes))
    return drawn


def _map(
    title: str,
    survey: Survey,
    rows: Sequence[Felt],
    names: Sequence[str],
    changes: Sequence[tuple[Score, ...]],
) -> Drawing:
    """Draw layers × sparsities, darker the more the loss grows (by its logarithm)."""
    heights = [_height(change) for row in changes for change in row if change is not None and change > 0]
    low, high = (min(heights), max(heights)) if heights else (0.0, 1.0)
    low = max(low, high - 5)  # what is a hundred thousand times smaller is nothing
    return charts.heat(
        title,
        [f"{sparsity:g}" for sparsity in survey.sparsities],
        [
            (
                name,
                [
                    (
                        min(1.0, max(0.0, (_height(change) - low) / ((high - low) or 1.0))),
                        "∞" if change is None else f"{change:.1g}",
                        f"{layer.name} at {sparsity:g}: {'not finite' if change is None else f'{change:+.4g}'}",
                    )
                    for change, sparsity in zip(row, survey.sparsities, strict=True)
                ],
            )
            for name, layer, row in zip(names, rows, changes, strict=True)
        ],
    )


def _height(change: Score) -> float:
    return 300.0 if change is None else math.log10(max(change, 1e-30))


def table(survey: Survey, budget: dict[str, float] | None = None, brief: bool = False) -> Table:
    """Make two rows a layer, predicted and measured, with a column for each sparsity and its share of a budget.

    A terminal has room for the `brief` one: no counts, nor how it was predicted.
    """
    head = ("layer", "weights", "change", *(f"{s:g}" for s in survey.sparsities), *(("budget",) if budget else ()))
    rows = []
    for layer in survey.layers:
        share = (f"{budget[layer.name]:.2%}" if layer.name in budget else "–",) if budget else ()
        by = "predicted" if brief else f"predicted ({layer.kind})"
        rows.append((layer.name, f"{layer.size:,}", by, *map(_figure, layer.predicted), *share))
        if layer.measured is not None:
            rows.append(
                ("" if brief else layer.name, "", "measured", *map(_figure, layer.measured), *(("",) if budget else ()))
            )
    kept = [k for k in range(len(head)) if not (brief and head[k] == "weights")]
    return Table(tuple(head[k] for k in kept), tuple(tuple(row[k] for k in kept) for row in rows))


def _figure(change: Score) -> str:
    return "not finite" if change is None else f"{change:+.2g}"


def write_page(file: File, folder: Path, title: str) -> Path:
    """Write a page of its own, which needs nothing beside it."""
    made = render(
        "felt.html", file=file, title=title, heat_maps=heat_maps, table=table, light=style(LIGHT), dark=style(DARK)
    )
    return put(folder, "sensitivity.html", made)
