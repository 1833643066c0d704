"""Write a report: the page, its pictures as SVG and PNG, its tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from brainsurgeon.app.report import pictures, tables
from brainsurgeon.app.report.charts import WIDE
from brainsurgeon.app.report.drawing import Drawing
from brainsurgeon.app.report.page import page
from brainsurgeon.app.report.png import draw_png
from brainsurgeon.app.report.record import Record, read_record


def write_report(folders: Sequence[Path], output: Path, files: bool = True, png: bool = True) -> Path:
    """Write `report.html` into a folder and, with `files`, every picture and table beside it; return the page."""
    record = read_record(folders)
    output.mkdir(parents=True, exist_ok=True)
    target = output / "report.html"
    target.write_text(page(record), encoding="utf-8")
    if files:
        for name, drawing in _drawings(record).items():
            _put(output / "figures" / f"{name}.svg", drawing.svg(standalone=True).encode())
            if png:
                _put(output / "figures" / f"{name}.png", draw_png(drawing))
        for name, picture in _masks(record).items():
            _put(output / "figures" / f"{name}.png", picture)
        for name, table in _tables(record).items():
            kinds: dict[str, Callable[[], str]] = {"csv": table.csv, "md": table.markdown, "tex": table.latex}
            for kind, text in kinds.items():
                _put(output / "tables" / f"{name}.{kind}", text().encode())
    return target


def _drawings(record: Record) -> dict[str, Drawing]:
    found: dict[str, Drawing] = {}
    if len(record.sparsities) > 1:
        found = {metric.replace(" ", "-"): pictures.curve(record, metric, WIDE) for metric in record.metrics}
        found["run-time"] = pictures.times(record, WIDE)
    for outcome in record.outcomes:
        name = cell_name(record, outcome)
        found[f"{name}layers"] = pictures.layer_bars(outcome)
        found[f"{name}run-time-parts"] = pictures.run_time(outcome)
        for kind, drawings in (("weights", pictures.histograms(outcome)[:1]), ("trace", pictures.traces(outcome))):
            found |= {f"{name}{kind}-{number}": drawing for number, drawing in enumerate(drawings, 1)}
    return found


def _masks(record: Record) -> dict[str, bytes]:
    return {
        f"{cell_name(record, outcome)}mask-{name}": picture
        for outcome in record.outcomes
        for name, picture in pictures.masks(outcome).items()
    }


def _tables(record: Record) -> dict[str, tables.Table]:
    found = {metric.replace(" ", "-"): tables.comparison(record, metric) for metric in record.metrics}
    found["outcomes"] = tables.everything(record)
    for outcome in record.outcomes:
        found[f"{cell_name(record, outcome)}layers"] = tables.layers(outcome)
    return found


def cell_name(record: Record, outcome: tables.Outcome) -> str:
    """Return what the files of an outcome begin with: nothing where there is one."""
    if len(record.outcomes) == 1:
        return ""
    return "".join(c if c.isalnum() or c in "-+." else "_" for c in f"{outcome.label}-{outcome.sparsity:g}") + "-"


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
