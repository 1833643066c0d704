"""The charts of a report: lines against sparsity or steps, bars, weights before and after."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from brainsurgeon.app.report.drawing import SERIES, Drawing, Point, ticks

NARROW, WIDE = 440.0, 920.0
LEFT, RIGHT, BOTTOM = 58.0, 14.0, 40.0
ROW, LETTER = 22.0, 7.8
NAME = 22
"""Letters that a bar has for its name."""


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
    top: float = 34.0

    def at(self, x: float, y: float) -> Point:
        across = (x - self.low[0]) / ((self.high[0] - self.low[0]) or 1.0)
        up = (y - self.low[1]) / ((self.high[1] - self.low[1]) or 1.0)
        wide, tall = self.drawing.width - LEFT - RIGHT, self.drawing.height - self.top - BOTTOM
        return LEFT + across * wide, self.top + (1 - up) * tall

    def rules(self, rungs: Sequence[float], axis: str) -> None:
        """Draw a line at each value, and name the axis below."""
        for rung in rungs:
            (x0, y), (x1, _) = self.at(self.low[0], rung), self.at(self.high[0], rung)
            self.drawing.line([(x0, y), (x1, y)], "grid")
            self.drawing.text(x0 - 6, y + 4, _number(rung), anchor="end")
        self.drawing.text((LEFT + self.drawing.width - RIGHT) / 2, self.drawing.height - 6, axis, anchor="middle")


def by_sparsity(title: str, unit: str, series: Sequence[Series], dense: float | None, width: float = NARROW) -> Drawing:
    """Draw a value against sparsity, one curve a method; the axis goes by the logarithm of the weights left."""
    marks = sorted({x for one in series for x, _ in one.points})
    return _lines(Drawing(width, 280, title), "sparsity", series, marks, _depth, unit, dense)


def trace(title: str, axis: str, series: Sequence[Series]) -> Drawing:
    """Draw values by the step of a search, or by stage."""
    xs = [x for one in series for x, _ in one.points]
    marks = [mark for mark in ticks(min(xs), max(max(xs), min(xs) + 1), 6) if mark == int(mark)]
    return _lines(Drawing(NARROW, 230, title), axis, series, marks)


def _lines(
    drawing: Drawing,
    axis: str,
    series: Sequence[Series],
    marks: Sequence[float],
    place: Callable[[float], float] = float,
    unit: str = "",
    dense: float | None = None,
) -> Drawing:
    """Draw curves; those `marks` of the x axis that would overlap one to the right of them go unnamed."""
    across = [place(x) for x in (*marks, *(x for one in series for x, _ in one.points))] or [0.0]
    values = [y for one in series for _, y in one.points] + ([] if dense is None else [dense])
    rungs = ticks(min(values, default=0.0), max(values, default=1.0))
    pad = 0.04 * (max(across) - min(across) or 1.0)
    top = _legend(drawing, [one.name for one in series])
    frame = _Frame(drawing, (min(across) - pad, rungs[0]), (max(across) + pad, rungs[-1]), top)
    frame.rules(rungs, axis)
    last = math.inf
    for mark in reversed(marks):
        x, y = frame.at(place(mark), rungs[0])
        drawing.line([(x, y), (x, y + 4)], "muted")
        if last - x > 12 + 0.5 * LETTER * len(f"{mark:g}"):
            drawing.text(x, y + 17, f"{mark:g}", anchor="middle")
            last = x - 0.5 * LETTER * len(f"{mark:g}")
    if dense is not None:
        (x0, y), (x1, _) = frame.at(frame.low[0], dense), frame.at(frame.high[0], dense)
        drawing.line([(x0, y), (x1, y)], "muted", 1.2)
        drawing.text(x1 - 2, y - 5 if y > top + 12 else y + 14, f"dense {dense:.4g}{unit}", anchor="end", size=11)
    for number, one in enumerate(series):
        role, placed = f"s{number % SERIES}", [(frame.at(place(x), y), x, y) for x, y in sorted(one.points)]
        if placed:
            drawing.line([point for point, _, _ in placed], role, 2.2)
        for (px, py), x, y in placed:
            drawing.marker(number, px, py, role, f"{one.name}, {axis} {x:g}: {y:.6g}{unit}", 4.0)
    return drawing


def _depth(sparsity: float) -> float:
    return -math.log10(max(1 - sparsity, 1e-6))


def bars(title: str, rows: Sequence[tuple[str, float, str, str]], role: str) -> Drawing:
    """Draw a share as a bar in each row: its name, the share, what stands at the end, and what pointing at it says."""
    drawing = Drawing(NARROW, 10 + ROW * len(rows), title)
    wide = NARROW - 272
    for number, (name, share, said, tip) in enumerate(rows):
        y = 14 + ROW * number
        drawing.text(4, y + 6, _short(name, NAME), role="ink")
        drawing.box(172, y - 5, wide, 13, "grid")
        drawing.box(172, y - 5, max(1.0, wide * share), 13, role, tip)
        drawing.text(NARROW - 4, y + 6, said, anchor="end")
    return drawing


def heat(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[float, str, str]]]]) -> Drawing:
    """Draw a cell for each row and column: how dark it is, from 0 to 1, a word, and what pointing at it says."""
    drawing = Drawing(NARROW, 32 + ROW * len(rows), title)
    start = 172.0
    wide = (NARROW - start) / max(1, len(columns))
    for number, column in enumerate(columns):
        drawing.text(start + (number + 0.5) * wide, 15, column, anchor="middle")
    for number, (name, cells) in enumerate(rows):
        y = 24 + ROW * number
        drawing.text(4, y + 15, _short(name, NAME), role="ink")
        for place, (share, word, tip) in enumerate(cells):
            x = start + place * wide
            corners = [(x, y), (x + wide - 2, y), (x + wide - 2, y + ROW - 2), (x, y + ROW - 2)]
            drawing.area(corners, "s1", round(0.06 + 0.64 * share, 2), tip)
            if wide > LETTER * len(word) * 0.8:
                drawing.text(x + wide / 2, y + 14, word, role="ink", anchor="middle", size=11)
    return drawing


def histogram(name: str, reach: float, before: Sequence[int], after: Sequence[int]) -> Drawing:
    """Draw the weights before (outline) and those kept after (filled); the highest bars may be cut."""
    drawing = Drawing(NARROW, 220, f"weights of {name}, before and after")
    top = _cut(before, after)
    frame = _Frame(drawing, (-reach, 0.0), (reach, top))
    frame.rules([rung for rung in ticks(0, top, 3) if rung <= top * 1.001], "weight")
    for role, counts, opacity, said in (("s7", before, 0.25, "before"), ("s0", after, 0.75, "kept")):
        steps = [-reach + 2 * reach * k / len(counts) for k in range(len(counts) + 1)]
        points = [frame.at(-reach, 0)]
        for left, right, count in zip(steps, steps[1:], counts, strict=False):
            points += [frame.at(left, min(count, top)), frame.at(right, min(count, top))]
        points.append(frame.at(reach, 0))
        drawing.area(points, role, opacity, f"{sum(counts):,} weights {said}")
        if role == "s7":
            drawing.line(points, role, 1.2)
    for value, anchor in ((-reach, "start"), (0.0, "middle"), (reach, "end")):
        x, y = frame.at(value, 0)
        drawing.text(x, y + 16, f"{value:.2g}", anchor=anchor)
    before_said = "before (peak cut)" if max(before) > top * 1.001 else "before"
    drawing.text(4, 16, _short(name, 28), role="ink", size=14, bold=True)
    for role, said, x in (("s7", before_said, NARROW - RIGHT - 58), ("s0", "kept", NARROW - RIGHT)):
        drawing.text(x, 16, said, anchor="end")
        drawing.box(x - 6.8 * len(said) - 16, 8, 9, 9, role)
    return drawing


def _cut(before: Sequence[int], after: Sequence[int]) -> float:
    """Choose the height of a histogram: that of the bars, unless a few by far outgrow the rest."""
    tall = sorted((*before, *after))
    return float(max(1, min(tall[-1], 3 * max(max(after), tall[int(0.9 * len(tall))]))))


def _number(value: float) -> str:
    if 10_000 <= abs(value) < 1e9:
        return f"{value / 1000:g}k"
    return f"{value:.4g}"


def _legend(drawing: Drawing, names: Sequence[str]) -> float:
    """Name the curves, in as many lines as they take; make the sheet that much taller, and say where it goes on."""
    x, y = LEFT, 16.0
    for number, name in enumerate(names):
        name = _short(name, int((drawing.width - LEFT - 30) / LETTER))
        wide = 30 + LETTER * len(name)
        if x > LEFT and x + wide - 16 > drawing.width:
            x, y = LEFT, y + 18
        drawing.marker(number, x + 5, y - 4, f"s{number % SERIES}")
        drawing.text(x + 14, y, name, role="ink")
        x += wide
    drawing.height += y - 16
    return y + 18


def _short(name: str, length: int) -> str:
    """Cut a name in its middle, where it is too long."""
    head = length // 3
    return name if len(name) <= length else f"{name[:head]}…{name[head + 1 - length :]}"
