"""Draw docs/figures/searches.svg from benchmarks/results/searches.json: quality against seconds, a column a case.

python benchmarks/searches_figure.py
"""

import json
import math
from pathlib import Path
from typing import Any

from brainsurgeon.app.report.drawing import Drawing, Point, ticks

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "searches.json"
FIGURE = HERE.parent / "docs" / "figures" / "searches.svg"
MEASURES = ("objective", "sample loss", "accuracy")
NAMES = ("recentred", "multi-start", "tabu", "relinking", "algorithm 1", "wide", "polish", "multi-start, recentred")
TITLES = {"mlpnet": "MLPNet", "resnet20": "ResNet20"}
WIDE, TALL, TOP, GAP = 310.0, 220.0, 64.0, 62.0

Row = dict[str, Any]


def panel(drawing: Drawing, corner: Point, rows: list[Row], measure: str) -> None:
    """Draw one measure against seconds, which go by their logarithm; the dark dot is the start, RMP."""
    left, top = corner
    rungs = ticks(min(row[measure] for row in rows), max(row[measure] for row in rows), 4)
    times = [math.log10(row["seconds"]) for row in rows]
    first, last = min(times) - 0.06, max(times) + 0.06

    def at(seconds: float, value: float) -> Point:
        across = (math.log10(seconds) - first) / (last - first)
        return left + across * (WIDE - GAP), top + (1 - (value - rungs[0]) / (rungs[-1] - rungs[0])) * (TALL - GAP)

    for rung in rungs:
        y = at(rows[0]["seconds"], rung)[1]
        drawing.line([(left, y), (left + WIDE - GAP, y)], "grid")
        drawing.text(left - 6, y + 4, f"{rung:.6g}", anchor="end", size=11)
    for seconds in (0.5, 1, 2, 5, 10, 20, 50, 100):
        if first <= math.log10(seconds) <= last:
            x, y = at(seconds, rungs[0])
            drawing.line([(x, y), (x, y + 4)], "muted")
            drawing.text(x, y + 16, f"{seconds:g} s", anchor="middle", size=11)
    start = next(row for row in rows if row["search"] == "rmp")
    drawing.marker(0, *at(start["seconds"], start[measure]), "ink", f"rmp: {start[measure]:.4g}")
    for number, name in enumerate(NAMES):
        own = sorted((row for row in rows if row["search"] == name), key=lambda row: row["seconds"])
        points = [at(row["seconds"], row[measure]) for row in own]
        drawing.line(points, f"s{number}", 1.8)
        for (x, y), row in zip(points, own, strict=True):
            drawing.marker(number, x, y, f"s{number}", f"{name}: {row[measure]:.4g} in {row['seconds']:.1f} s")


def draw(record: dict[str, Any]) -> Drawing:
    rows = [row for network in record.values() for row in network["rows"]]
    cases = list(dict.fromkeys((row["network"], row["sparsity"]) for row in rows))
    drawing = Drawing(GAP + WIDE * len(cases), TOP + TALL * len(MEASURES), "searches: quality against CPU seconds")
    for number, name in enumerate(("rmp (the start)", *NAMES)):
        x, y = GAP + 200 * (number % 5), 16.0 + 18 * (number // 5)
        drawing.marker(max(number - 1, 0), x, y - 4, f"s{number - 1}" if number else "ink")
        drawing.text(x + 10, y, name, role="ink")
    for column, (network, sparsity) in enumerate(cases):
        own = [row for row in rows if (row["network"], row["sparsity"]) == (network, sparsity)]
        for line, measure in enumerate(MEASURES):
            corner = GAP + WIDE * column, TOP + TALL * line + 22
            drawing.text(corner[0], corner[1] - 10, f"{TITLES[network]} {sparsity:g}: {measure}", role="ink", size=12)
            panel(drawing, corner, own, measure)
    return drawing


def table(record: dict[str, Any]) -> str:
    """Return the rows of all networks as Markdown; experiments/write_tables.py puts them on the page."""
    lines = [
        "| network | sparsity | search | CPU s | objective | sample loss | accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    for network in record.values():
        rows = sorted(network["rows"], key=lambda row: (row["sparsity"], -row["sample loss"]))
        lines += [
            f"| {TITLES[row['network']]} | {row['sparsity']:g} | {row['search']} | {row['seconds']:.1f} | "
            f"{row['objective']:.4f} | {row['sample loss']:.3f} | {row['accuracy']:.2f} |"
            for row in rows
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    FIGURE.write_text(draw(json.loads(RESULTS.read_text())).svg(standalone=True))
