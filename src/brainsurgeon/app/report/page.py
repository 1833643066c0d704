"""One self-contained page of HTML: no script, style, font or picture comes from anywhere else."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from brainsurgeon.app.report import pictures, tables
from brainsurgeon.app.report.charts import WIDE
from brainsurgeon.app.report.drawing import DARK, LIGHT, Drawing, style
from brainsurgeon.app.report.record import SAMPLE_LOSS, Outcome, Record, unit


def page(record: Record) -> str:
    """Return the report as HTML."""
    single = len(record.outcomes) == 1
    parts = [_head(record), *([] if single else [_comparison(record)])]
    parts += [] if single else ["<h2>Each outcome</h2>"]
    parts += [_outcome(record, outcome, opened=single) for outcome in record.outcomes]
    parts.append(_made_with(record))
    own = files("brainsurgeon.app.report")
    colours = f"{style(LIGHT, 'svg')} @media screen and (prefers-color-scheme: dark) {{ {style(DARK, 'svg')} }}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(_title(record))}</title><link rel="icon" href="data:,">'
        f"<style>\n{(own / 'page.css').read_text()}{colours}\n</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + f"\n</main>\n<script>\n{(own / 'page.js').read_text()}</script></body></html>\n"
    )


def _title(record: Record) -> str:
    if len(record.outcomes) == 1:
        only = record.outcomes[0]
        return f"{only.label} at sparsity {only.sparsity:g}"
    return f"{_count(len(record.labels), 'method')} at {_count(len(record.sparsities), 'sparsity', 'sparsities')}"


def _head(record: Record) -> str:
    tiles = _single_tiles(record) if len(record.outcomes) == 1 else _comparison_tiles(record)
    shown = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles
    )
    return (
        f'<header><h1>{escape(_title(record))}</h1><p class="sub">{escape(_about(record))}</p>'
        f'<div class="tiles">{shown}</div></header>'
    )


def _about(record: Record) -> str:
    made = f"brainsurgeon {record.versions['brainsurgeon']}" if record.versions else ""
    return " · ".join(part for part in (record.title, record.target, made) if part)


def _single_tiles(record: Record) -> Iterable[tuple[str, str]]:
    only = record.outcomes[0]
    pruned, size = only.result["pruned"], only.result["size"]
    yield f"of {size:,} weights pruned", f"{pruned:,}"
    yield "weights left", f"{size - pruned:,}"
    for metric in dict.fromkeys([record.metric, SAMPLE_LOSS]):
        dense, mark = record.of_dense(metric), unit(metric)
        before = "" if dense is None else f" (dense {tables.figure(dense, metric)}{mark})"
        yield f"{metric}{before}", tables.shown(only, metric) + mark
    yield "in all", f"{only.seconds:.1f} s"


def _comparison_tiles(record: Record) -> Iterable[tuple[str, str]]:
    metric, mark = record.metric, unit(record.metric)
    dense = record.of_dense(metric)
    yield "weights", f"{record.outcomes[0].result['size']:,}"
    if dense is not None:
        yield f"{metric}, dense", tables.figure(dense, metric) + mark
    for sparsity in record.sparsities[-3:]:
        best = record.best(sparsity)
        if best is not None:
            yield f"best {metric} at {sparsity:g}: {best.label}", tables.shown(best, metric) + mark


def _comparison(record: Record) -> str:
    parts = []
    for number, metric in enumerate(record.metrics):
        table = tables.comparison(record, metric)
        table = table if number == 0 else table.without(1)  # the weights left are the same everywhere
        links = {
            (row, column): f"#{_id(outcome)}"
            for row, sparsity in enumerate(record.sparsities)
            for column, label in enumerate(record.labels, 2 if number == 0 else 1)
            if (outcome := record.at(label, sparsity)) is not None
        }
        title = f"{metric.capitalize()}{f' in {unit(metric)}' if unit(metric) else ''}"
        shown = f"<h3>{escape(title)}</h3>{table.html(links)}"
        if len(record.sparsities) > 1:
            narrow = pictures.curve(record, metric).svg()
            wide = pictures.curve(record, metric, WIDE).svg() if number == 0 else narrow
            both = f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>' if number == 0 else narrow
            parts.append(f'<section class="card">{shown}<br>{both}</section>')
        else:
            parts.append(f'<section class="card">{shown}</section>')
    if len(record.sparsities) > 1:
        parts.append(_card("Run time in seconds, gradients included", pictures.times(record)))
    everything = f"<h3>Exact counts, losses and times</h3>{tables.everything(record).html()}"
    return (
        f'<h2>Comparison</h2>{parts[0]}<div class="flow after">{"".join(parts[1:])}</div>'
        f'<section class="card">{everything}</section>'
    )


def _outcome(record: Record, outcome: Outcome, opened: bool) -> str:
    pruned, size, mark = outcome.result["pruned"], outcome.result["size"], unit(record.metric)
    said = f"{record.metric} {tables.shown(outcome, record.metric)}{mark} · {pruned:,} of {size:,} pruned"
    many = len(outcome.result["layers"]) > 16
    cards = [] if many else [_card("Sparsity of each layer", pictures.layer_bars(outcome))]
    cards.append(_card("Where the time went", pictures.run_time(outcome)))
    cards += [_card("Weights before, and those kept", drawing) for drawing in pictures.histograms(outcome)[:1]]
    cards += [_card(drawing.label.capitalize(), drawing) for drawing in pictures.traces(outcome)]
    below = [_masks(outcome)]
    others = pictures.histograms(outcome)[1:]
    if others:
        inner = "".join(f'<div class="card">{drawing.svg()}</div>' for drawing in others)
        below.append(_folded("Weights, layer by layer", inner))
    bars = _card("Sparsity of each layer", pictures.layer_bars(outcome)) if many else ""
    counts = f'<section class="card">{tables.layers(outcome).html()}</section>'
    below.append(_folded("Exact counts by layer", bars + counts))
    notes = "".join(f'<p class="note">Note: {escape(note)}</p>' for note in outcome.result["notes"])
    inside = f'{notes}<div class="flow">{"".join(cards)}</div>{"".join(below)}{_settings(outcome)}'
    if opened:
        return f'<div class="outcome only">{inside}</div>'
    title = f"{escape(outcome.label)} at {outcome.sparsity:g} <span>{escape(said)}</span>"
    return f'<details class="outcome" id="{_id(outcome)}"><summary>{title}</summary>{inside}</details>'


def _masks(outcome: Outcome) -> str:
    figures = []
    for name, picture in pictures.masks(outcome).items():
        layer = next(la for la in outcome.result["layers"] if la["name"] == name)
        said = f"{name} ({'×'.join(map(str, layer['shape']))}): {layer['size'] - layer['pruned']:,} left"
        source = base64.b64encode(picture).decode()
        kind = ' class="whole"' if _ratio(layer["shape"]) > 5 else ""
        figures.append(
            f'<figure{kind}><img alt="mask of {escape(name)}" src="data:image/png;base64,{source}">'
            f"<figcaption>{escape(said)}</figcaption></figure>"
        )
    if not figures:
        return ""
    title = "Masks of the smaller layers, one pixel a weight, coloured where it is kept"
    return f'<section class="card"><h3>{title}</h3><div class="masks">{"".join(figures)}</div></section>'


def _ratio(shape: list[int]) -> float:
    rows, columns = shape[0], math.prod(shape[1:])
    return max(rows, columns) / min(rows, columns)


def _settings(outcome: Outcome) -> str:
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in _flat(outcome.result["settings"]))
    return (
        '<details class="more"><summary>Settings</summary><div class="card scroll">'
        f'<table class="settings"><tbody>{rows}</tbody></table></div></details>'
    )


def _made_with(record: Record) -> str:
    parts = []
    if record.versions:
        rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in record.versions.items())
        parts.append(
            f'<section class="card"><h3>Versions</h3><table class="settings"><tbody>{rows}</tbody></table></section>'
        )
    if record.recipe:
        parts.append(
            '<section class="card"><h3>Recipe</h3><p class="note">Saved as recipe.yaml: '
            f"brainsurgeon prune (or compare) --recipe recipe.yaml does the same again.</p>"
            f"<pre>{escape(record.recipe)}</pre></section>"
        )
    return f'<h2>How it was made</h2><div class="grid">{"".join(parts)}</div>' if parts else ""


def _card(title: str, drawing: Drawing) -> str:
    return f'<section class="card"><h3>{escape(title)}</h3>{drawing.svg()}</section>'


def _folded(title: str, inside: str) -> str:
    return f'<details class="more"><summary>{title}</summary><div class="grid">{inside}</div></details>'


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value is None else str(value)


def _id(outcome: Outcome) -> str:
    return "".join(c if c.isalnum() else "-" for c in f"{outcome.label}-{outcome.sparsity:g}")


def _count(number: int, word: str, plural: str = "") -> str:
    return f"{number} {word if number == 1 else plural or word + 's'}"
