"""Write a report: the page, its pictures as SVG and PNG, its tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from brainsurgeon.app.report import felt, pictures, tables
from brainsurgeon.app.report.charts import WIDE
from brainsurgeon.app.report.drawing import Drawing
from brainsurgeon.app.report.forms import Table
from brainsurgeon.app.report.output import put, subfolder
from brainsurgeon.app.report.page import page
from brainsurgeon.app.report.png import draw_png, why_no_png
from brainsurgeon.app.report.reading import read_record
from brainsurgeon.app.report.record import Record
from brainsurgeon.files.writing import safe_names


def write_report(folders: Sequence[Path], output: Path, files: bool = True, png: bool = True) -> Path:
    """Write `report.html` into a folder and, with `files`, every picture and table beside it; return the page.

    PNG is left out where matplotlib is not installed; `png.why_no_png` says so.
    """
    record = read_record(folders)
    output.mkdir(parents=True, exist_ok=True)
    target = put(output, "report.html", page(record))
    if files:
        _write_figures(record, subfolder(output, "figures"), png and not why_no_png())
        found = dict(_tables(record))
        place = subfolder(output, "tables")
        for name, table in zip(safe_names(found), found.values(), strict=True):
            for kind, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
                put(place, f"{name}.{kind}", text)
    return target


def _write_figures(record: Record, folder: Path, png: bool) -> None:
    drawn: dict[str, Drawing | bytes] = dict(_drawings(record))
    if png:
        for outcome in record.outcomes:
            drawn |= {f"{_prefix(record, outcome.name)}mask-{la.name}": mask for la, mask in pictures.masks(outcome)}
    for name, picture in zip(safe_names(drawn), drawn.values(), strict=True):
        if isinstance(picture, Drawing):
            put(folder, f"{name}.svg", picture.svg(standalone=True))
        if png:
            put(folder, f"{name}.png", draw_png(picture) if isinstance(picture, Drawing) else picture)


def _drawings(record: Record) -> Iterator[tuple[str, Drawing]]:
    if len(record.sparsities) > 1:
        yield from ((metric, pictures.curve(record, metric, WIDE)) for metric in record.metrics)
        yield "run time", pictures.times(record, WIDE)
    if record.felt is not None:
        kinds = ("sensitivity-predicted", "sensitivity-measured")
        yield from zip(kinds, felt.heat_maps(record.felt.sensitivity), strict=False)
    for outcome in record.outcomes:
        own = _prefix(record, outcome.name)
        yield f"{own}layers", pictures.layer_bars(outcome)
        yield f"{own}run-time-parts", pictures.run_time(outcome)
        for kind, drawings in (("weights", pictures.histograms(outcome)[:1]), ("trace", pictures.traces(outcome))):
            yield from ((f"{own}{kind}-{number}", drawing) for number, drawing in enumerate(drawings, 1))


def _tables(record: Record) -> Iterator[tuple[str, Table]]:
    yield from ((metric, tables.comparison(record, metric)) for metric in record.metrics)
    yield "outcomes", tables.everything(record)
    if costs := tables.costs(record):
        yield "costs", costs
    if record.felt is not None:
        yield "sensitivity", felt.table(record.felt.sensitivity, record.felt.budget)
    yield from ((f"{_prefix(record, o.name)}layers", tables.layers(o)) for o in record.outcomes)


def _prefix(record: Record, name: str) -> str:
    """Return what the files of an outcome begin with: nothing where there is one."""
    return f"{name}-" if len(record.outcomes) > 1 else ""
