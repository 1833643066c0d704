"""The charts of a report: lines against sparsity, layers as bars, weights before and after, traces, times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from brainsurgeon.app.report.drawing import SERIES, Drawing, Point, ticks

NARROW, WIDE = 440.0, 920.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 14.0, 34.0, 40.0
ROW = 22.0


@dataclass(frozen=True)
class Series:
    """A named curve."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class _Frame:
    """Axes: where a value lies on the sheet."""

    drawing: Drawing
    low: Point
    high: Point

    def at(self, x: float, y: float) -> Point:
        across = (x - self.low[0]) / ((self.high[0] - self.low[0]) or 1.0)
        up = (y - self.low[1]) / ((self.high[1] - self.low[1]) or 1.0)
        wide, tall = self.drawing.width - LEFT - RIGHT, self.drawing.height - TOP - BOTTOM
        return LEFT + across * wide, TOP + (1 - up) * tall


def by_sparsity(title: str, unit: str, series: Sequence[Series], dense: float | None, width: float = NARROW) -> Drawing:
    """Draw a value against sparsity, one curve a method; the axis goes by the logarithm of the weights left."""
    drawing = Drawing(width, 300 if width == NARROW else 340, title)
    marks = sorted({x for one in series for x, _ in one.points})
    values = [y for one in series for _, y in one.points if math.isfinite(y)] + ([] if dense is None else [dense])
    rungs = ticks(min(values, default=0.0), max(values, default=1.0))
    pad = 0.04 * (_depth(marks[-1]) - _depth(marks[0]) or 1.0)
    frame = _Frame(drawing, (_depth(marks[0]) - pad, rungs[0]), (_depth(marks[-1]) + pad, rungs[-1]))
    _rules(frame, rungs)
    last = -math.inf
    for mark in reversed(marks):  # the highest sparsities matter most; those that would overlap them go unnamed
        x, y = frame.at(_depth(mark), rungs[0])
        drawing.line([(x, y), (x, y + 4)], "muted")
        if last == -math.inf or last - x > 30:
            drawing.text(x, y + 17, f"{mark:g}", anchor="middle")
            last = x
    drawing.text((LEFT + width - RIGHT) / 2, drawing.height - 6, "sparsity", anchor="middle")
    if dense is not None:
        (x0, y), (x1, _) = frame.at(frame.low[0], dense), frame.at(frame.high[0], dense)
        drawing.line([(x0, y), (x1, y)], "muted", 1.2)
        drawing.text(x1 - 2, y - 5 if y > TOP + 12 else y + 14, f"dense {dense:.4g}{unit}", anchor="end", size=11)
    for number, one in enumerate(series):
        role = f"s{number % SERIES}"
        placed = [(frame.at(_depth(x), y), x, y) for x, y in sorted(one.points) if math.isfinite(y)]
        drawing.line([point for point, _, _ in placed], role, 2.2)
        for (px, py), x, y in placed:
            drawing.marker(number, px, py, role, f"{one.name} at {x:g}: {y:.4g}{unit}")
    _legend(drawing, [one.name for one in series])
    if width == WIDE:
        drawing.text(width - RIGHT, 16, title, anchor="end")
    return drawing


def _depth(sparsity: float) -> float:
    return -math.log10(max(1 - sparsity, 1e-6))


def layer_bars(title: str, layers: Sequence[tuple[str, int, int]]) -> Drawing:
    """Draw the sparsity of each layer (name, pruned, size) as a bar, with its exact counts."""
    drawing = Drawing(NARROW, 2 * ROW * len(layers), title)
    for number, (name, pruned, size) in enumerate(layers):
        y, wide = 12 + 2 * ROW * number, NARROW - 8
        drawing.text(4, y + 6, _short(name, 30), role="ink")
        drawing.text(NARROW - 4, y + 6, f"{pruned:,} of {size:,}  {pruned / size:.1%}", anchor="end")
        drawing.box(4, y + 12, wide, 10, "grid")
        drawing.box(4, y + 12, wide * pruned / size, 10, "s0", f"{name}: {pruned:,} of {size:,} weights pruned")
    return drawing


def histogram(name: str, reach: float, before: Sequence[int], after: Sequence[int]) -> Drawing:
    """Draw the weights before (outline) and those kept after (filled); the highest bars may be cut."""
    drawing = Drawing(NARROW, 220, f"weights of {name}, before and after")
    top = _cut(before, after)
    rungs = [rung for rung in ticks(0, top, 3) if rung <= top * 1.001]
    frame = _Frame(drawing, (-reach, 0.0), (reach, top))
    _rules(frame, rungs)
    for role, counts in (("s7", before), ("s0", after)):
        bins = len(counts)
        steps = [-reach + 2 * reach * k / bins for k in range(bins + 1)]
        points = [frame.at(-reach, 0)]
        for left, right, count in zip(steps, steps[1:], counts, strict=False):
            points += [frame.at(left, min(count, top)), frame.at(right, min(count, top))]
        points.append(frame.at(reach, 0))
        if role == "s0":
            drawing.area(points, role, 0.75, f"{sum(after):,} weights kept")
        else:
            drawing.area(points, role, 0.25, f"{sum(before):,} weights before")
            drawing.line(points, role, 1.2)
    for value in (-reach, 0.0, reach):
        x, y = frame.at(value, 0)
        anchor = {-reach: "start", 0.0: "middle"}.get(value, "end")
        drawing.text(x, y + 16, f"{value:.2g}", anchor=anchor)
    drawing.text((LEFT + NARROW - RIGHT) / 2, drawing.height - 6, "weight", anchor="middle")
    drawing.text(4, 16, _short(name, 40), role="ink", size=14, bold=True)
    before_said = "before (peak cut)" if max(before) > top * 1.001 else "before"
    for role, said, x in (("s7", before_said, NARROW - RIGHT - 58), ("s0", "kept", NARROW - RIGHT)):
        drawing.text(x, 16, said, anchor="end")
        drawing.box(x - 6.8 * len(said) - 16, 8, 9, 9, role)
    return drawing


def _cut(before: Sequence[int], after: Sequence[int]) -> float:
    """Choose the height of a histogram: that of the bars, unless a few by far outgrow the rest."""
    tall = sorted((*before, *after))
    return float(max(1, min(tall[-1], 3 * max(max(after), tall[int(0.9 * len(tall))]))))


def trace(title: str, axis: str, series: Sequence[Series]) -> Drawing:
    """Draw values by the step of a search, or by stage."""
    drawing = Drawing(NARROW, 260, title)
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    rungs, marks = ticks(min(ys), max(ys), 4), ticks(min(xs), max(max(xs), min(xs) + 1), 6)
    marks = [mark for mark in marks if mark == int(mark)]
    frame = _Frame(drawing, (marks[0], rungs[0]), (marks[-1], rungs[-1]))
    _rules(frame, rungs)
    for mark in marks:
        x, y = frame.at(mark, rungs[0])
        drawing.text(x, y + 16, f"{mark:g}", anchor="middle")
    drawing.text((LEFT + NARROW - RIGHT) / 2, drawing.height - 6, axis, anchor="middle")
    for number, one in enumerate(series):
        role = f"s{number % SERIES}"
        placed = [frame.at(x, y) for x, y in one.points]
        drawing.line(placed, role, 2.0)
        for (px, py), (x, y) in zip(placed, one.points, strict=True):
            drawing.marker(number, px, py, role, f"{one.name}, {axis} {x:g}: {y:.6g}", 3.0)
    _legend(drawing, [one.name for one in series])
    return drawing


def break_down(title: str, seconds: dict[str, float]) -> Drawing:
    """Draw where the time went, the longest first."""
    parts = sorted(((k, v) for k, v in seconds.items() if v > 0), key=lambda part: -part[1])
    total = sum(value for _, value in parts) or 1.0
    drawing = Drawing(NARROW, 10 + ROW * len(parts), title)
    wide = NARROW - 262
    for number, (name, value) in enumerate(parts):
        y = 14 + ROW * number
        drawing.text(4, y + 6, _short(name, 23), role="ink")
        drawing.box(168, y - 4, max(1.0, wide * value / parts[0][1]), 12, "s2", f"{name}: {value:.3f} s")
        drawing.text(NARROW - 4, y + 6, f"{value:.2f} s  {value / total:.0%}", anchor="end")
    return drawing


def _rules(frame: _Frame, rungs: Sequence[float]) -> None:
    for rung in rungs:
        (x0, y), (x1, _) = frame.at(frame.low[0], rung), frame.at(frame.high[0], rung)
        frame.drawing.line([(x0, y), (x1, y)], "grid")
        frame.drawing.text(x0 - 6, y + 4, _number(rung), anchor="end")


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.6g}"


def _legend(drawing: Drawing, names: Sequence[str]) -> None:
    x, y = LEFT, 16.0
    for number, name in enumerate(names):
        drawing.marker(number, x + 5, y - 4, f"s{number % SERIES}")
        drawing.text(x + 14, y, name, role="ink")
        x += 14 + 7.8 * len(name) + 16


def _short(name: str, length: int) -> str:
    return name if len(name) <= length else f"…{name[-length + 1 :]}"
