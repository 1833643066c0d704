"""Everything that is drawn lies on its sheet."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brainsurgeon.app.report import charts
from brainsurgeon.app.report.charts import NARROW, WIDE, Series
from brainsurgeon.app.report.drawing import Drawing, Line


def check_inside(drawing: Drawing) -> None:
    """Check shapes, and texts by the width that their letters may take."""
    for shape in drawing.shapes:
        if isinstance(shape, Line):
            xs, ys = [x for x, _ in shape.points], [y for _, y in shape.points]
        else:
            wide = 0.56 * shape.size * len(shape.words)
            left = shape.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[shape.anchor] * wide
            xs, ys = [left, left + wide], [shape.y - 0.8 * shape.size, shape.y]
        assert min(xs) >= -1, shape
        assert max(xs) <= drawing.width + 1, shape
        assert min(ys) >= -1, shape
        assert max(ys) <= drawing.height + 1, shape


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("names", [["mp"], ["m" * 9] * 12, ["a very long name of a method " * 5] * 3])
def test_any_number_of_series_fits(width: float, names: list[str]) -> None:
    points = [(0.5, 94.0), (0.9, 80.5), (0.95, 40.0), (0.98, 10.0), (0.999, 9.8), (1.0, 9.8)]
    drawing = charts.by_sparsity("accuracy", "%", [Series(name, points) for name in names], 95.0, width)
    check_inside(drawing)
    assert sum(isinstance(shape, Line) and shape.width == 2.2 for shape in drawing.shapes) == len(names)


def test_marks_that_would_overlap_go_unnamed() -> None:
    points = [(k / 200, float(k)) for k in range(180, 200)]
    drawing = charts.by_sparsity("x", "", [Series("mp", points)], None)
    below = sorted(
        s.x for s in drawing.shapes if not isinstance(s, Line) and s.anchor == "middle" and s.words[0] == "0"
    )
    assert len(below) > 3
    assert all(b - a > 30 for a, b in pairwise(below))


def test_nothing_to_draw_is_an_empty_chart() -> None:
    check_inside(charts.by_sparsity("x", "", [Series("mp", [])], None))
    check_inside(charts.by_sparsity("x", "", [Series("mp", [(0.5, 1.0)])], 1.0))


def test_traces_and_bars_fit() -> None:
    check_inside(charts.trace("x", "step", [Series("objective", [(1, 1e-14), (2, 3e-14), (9, 2e-14)])]))
    check_inside(charts.trace("x", "stage", [Series("pruned", [(k, 1e6 * k) for k in range(40)])]))
    for count in (1, 17, 200):
        rows = [("encoder.layer.with.a.long.name.weight", k / count, "99.99%", "tip") for k in range(count)]
        drawing = charts.bars("layers", rows, "s0")
        check_inside(drawing)
        assert sum(isinstance(shape, Line) and shape.role == "s0" for shape in drawing.shapes) == count


def test_a_histogram_cuts_a_peak_and_says_so() -> None:
    drawing = charts.histogram("w" * 60, 0.5, [2] * 10 + [900] + [2] * 10, [2] * 10 + [0] + [2] * 10)
    check_inside(drawing)
    assert "before (peak cut)" in [shape.words for shape in drawing.shapes if not isinstance(shape, Line)]
    check_inside(charts.histogram("x", 1e100, [0], [0]))
