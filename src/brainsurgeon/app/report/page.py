"""One self-contained page of HTML: no script, style, font or picture comes from anywhere else."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import Any

from brainsurgeon.app.report import felt, pictures, tables
from brainsurgeon.app.report.charts import WIDE
from brainsurgeon.app.report.drawing import DARK, LIGHT, style
from brainsurgeon.app.report.forms import Table
from brainsurgeon.app.report.png import why_no_png
from brainsurgeon.app.report.record import SAMPLE_LOSS, Outcome, Record, unit
from brainsurgeon.app.report.templating import render


def page(record: Record) -> str:
    """Return the report as HTML."""
    single = len(record.outcomes) == 1
    made = f"brainsurgeon {record.facts.versions['brainsurgeon']}" if "brainsurgeon" in record.facts.versions else ""
    return render(
        "page.html",
        record=record,
        single=single,
        title=_title(record),
        about=" · ".join(filter(None, (record.title, record.target, made))),
        tiles=_single_tiles(record) if single else _comparison_tiles(record),
        light=style(LIGHT),
        dark=style(DARK),
        wide=WIDE,
        metrics=[] if single else [_compared(record, metric) for metric in record.metrics],
        pictures=pictures,
        heat_maps=felt.heat_maps,
        felt_table=felt.table,
        tables=tables,
        unit=unit,
        masks=_masks,
        flat=_flat,
        zip=zip,
        why_no_png=why_no_png(),
    )


def _title(record: Record) -> str:
    if len(record.outcomes) == 1:
        return f"{record.outcomes[0].label} at sparsity {record.outcomes[0].sparsity:g}"
    methods, sparsities = len(record.labels), len(record.sparsities)
    return f"{methods} method{'s'[: methods > 1]} at {sparsities} {'sparsities' if sparsities > 1 else 'sparsity'}"


def _shown(outcome: Outcome, metric: str) -> str:
    return tables.shown(outcome, metric) + (unit(metric) if outcome.value(metric) is not None else "")


def _single_tiles(record: Record) -> Iterable[tuple[str, str]]:
    only = record.outcomes[0]
    yield f"of {only.result.size:,} weights pruned", f"{only.result.pruned:,}"
    yield "weights left", f"{only.result.size - only.result.pruned:,}"
    for metric in record.metrics:
        if metric in (record.metric, SAMPLE_LOSS):
            dense = record.of_dense(metric)
            before = "" if dense is None else f" (dense {tables.figure(dense, metric)}{unit(metric)})"
            yield f"{metric}{before}", _shown(only, metric)
    yield "in all", f"{only.seconds:,.1f} s"


def _comparison_tiles(record: Record) -> Iterable[tuple[str, str]]:
    metric, dense = record.metric, record.of_dense(record.metric)
    yield "weights", f"{record.outcomes[0].result.size:,}"
    if dense is not None:
        yield f"{metric}, dense", tables.figure(dense, metric) + unit(metric)
    for sparsity in record.sparsities[-3:]:
        best = record.best(sparsity)
        if best is not None:
            yield f"best {metric} at {sparsity:g}: {best.label}", _shown(best, metric)


def _compared(record: Record, metric: str) -> tuple[str, str, Table, dict[tuple[int, int], str], bool]:
    """Return a metric, its unit, its table, where the cells of that lead, and whether there is anything to draw."""
    counted = metric == record.metric  # the weights left are the same in every table
    links = {
        (row, column): f"#{outcome.name}"
        for row, sparsity in enumerate(record.sparsities)
        for column, label in enumerate(record.labels, 1 + counted)
        if (outcome := record.at(label, sparsity)) is not None
    }
    drawn = len(record.sparsities) > 1 and any(outcome.value(metric) is not None for outcome in record.outcomes)
    return metric, unit(metric), tables.comparison(record, metric, counted), links, drawn


def _masks(outcome: Outcome) -> Iterable[tuple[str, str, str, bool]]:
    """Give for each small layer its name, what there is to say, its mask's picture, and whether it is very long."""
    for layer, picture in pictures.masks(outcome):
        rows, columns = layer.shape[0], math.prod(layer.shape[1:])
        said = f"{layer.name} ({'×'.join(map(str, layer.shape))}): {layer.size - layer.pruned:,} left"
        yield layer.name, said, base64.b64encode(picture).decode(), max(rows, columns) > 5 * min(rows, columns)


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value is None else str(value)
