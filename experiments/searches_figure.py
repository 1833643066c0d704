"""Draw docs/figures/searches.svg from the recorded searches: quality against seconds, a column for each case.

python -m experiments.searches_figure
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.records import BENCHMARKS, FIGURES, Record, read, table

RECORD = BENCHMARKS / "searches.json"
MEASURES = ("objective", "sample loss", "accuracy")
NAMES = ("recentred", "wide", "algorithm 1", "polish")
TITLES = {"mlpnet": "MLPNet", "resnet20": "ResNet20"}
HEAD = ("network", "sparsity", "search", "CPU s", "objective", "sample loss", "accuracy")


def rows_of(record: Record) -> list[Record]:
    """Return the rows of all networks, by network and sparsity, the highest sample loss first."""
    found = []
    for network in TITLES:
        found += sorted(record[network]["rows"], key=lambda row: (row["sparsity"], -row["sample loss"]))
    return found


def searches_table() -> str:
    """Return the table of docs/searches.md."""
    rows = [
        [
            TITLES[row["network"]],
            f"{row['sparsity']:g}",
            row["search"],
            f"{row['seconds']:.1f}",
            f"{row['objective']:.4f}",
            f"{row['sample loss']:.3f}",
            f"{row['accuracy']:.2f}",
        ]
        for row in rows_of(read(RECORD))
    ]
    return table(HEAD, rows)


def draw(rows: list[Record], path: Path) -> None:
    """Draw a column of panels for each case; the dark dot is the start, RMP."""
    from experiments.plots import pyplot_for_svg

    pyplot = pyplot_for_svg()
    cases = list(dict.fromkeys((row["network"], row["sparsity"]) for row in rows))
    size = (4.0 * len(cases), 2.6 * len(MEASURES))
    figure, axes = pyplot.subplots(len(MEASURES), len(cases), figsize=size, squeeze=False)
    for column, (network, sparsity) in enumerate(cases):
        own = [row for row in rows if (row["network"], row["sparsity"]) == (network, sparsity)]
        for line, measure in enumerate(MEASURES):
            _panel(axes[line][column], own, measure)
        axes[0][column].set_title(f"{TITLES[network]} {sparsity:g}", fontsize=9)
        axes[-1][column].set_xlabel("CPU seconds", fontsize=8)
    for line, measure in enumerate(MEASURES):
        axes[line][0].set_ylabel(measure, fontsize=8)
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _panel(axis: Any, rows: list[Record], measure: str) -> None:
    start = next(row for row in rows if row["search"] == "rmp")
    axis.scatter(start["seconds"], start[measure], color="black", s=24, label="rmp (the start)", zorder=3)
    for name in NAMES:
        own = sorted((row for row in rows if row["search"] == name), key=lambda row: row["seconds"])
        axis.plot([row["seconds"] for row in own], [row[measure] for row in own], marker="o", markersize=4, label=name)
    axis.set_xscale("log")
    axis.tick_params(labelsize=7)
    axis.grid(visible=True, alpha=0.3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=FIGURES / "searches.svg")
    options = parser.parse_args(arguments)
    draw(rows_of(read(RECORD)), options.output)


if __name__ == "__main__":
    main()
