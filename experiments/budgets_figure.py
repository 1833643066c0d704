"""Draw docs/figures/budgets.svg: accuracy against sample gradients, and against seconds, by `auto` and its peers.

python -m experiments.budgets_figure
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.records import FIGURES, RESULTS, Record, read_lines
from experiments.write_budgets import on_gpu

PANELS = (("mlpnet", 0.95, "MLPNet, 0.95"), ("resnet20", 0.9, "ResNet20, 0.9"))
METHODS = ("auto", "magnitude", "magnitude, distilled")


def points(runs: list[Record], method: str, sparsity: float) -> list[tuple[int, float, float | None]]:
    """Return gradients, mean accuracy and, off the GPU, mean seconds of one core, by rising gradients."""
    own = [run for run in runs if run["method"] == method and run["sparsity"] == sparsity]
    found = []
    for gradients in sorted({run["max_gradients"] for run in own}):
        some = [run for run in own if run["max_gradients"] == gradients]
        seconds = None if on_gpu(some[0]) else mean(run["cpu_seconds"] for run in some)
        found.append((gradients, mean(run["accuracy"] for run in some), seconds))
    return found


def draw(path: Path) -> None:
    """Draw a panel for each network against gradients, and one for what one core did against its seconds."""
    from experiments.plots import pyplot_for_svg

    pyplot = pyplot_for_svg()
    figure, axes = pyplot.subplots(1, len(PANELS) + 1, figsize=(4.4 * (len(PANELS) + 1), 3.4))
    for axis, (network, sparsity, title) in zip(axes, PANELS, strict=False):
        runs = read_lines(RESULTS / f"budgets-{network}-all.jsonl")
        for method in METHODS:
            _line(axis, [(at, accuracy) for at, accuracy, _ in points(runs, method, sparsity)], method)
        _finish(axis, title, "sample gradients")
    network, sparsity, title = PANELS[0]
    runs = read_lines(RESULTS / f"budgets-{network}-all.jsonl")
    for method in METHODS:
        timed = [(s, accuracy) for _, accuracy, s in points(runs, method, sparsity) if s is not None]
        _line(axes[-1], timed, method)
    _finish(axes[-1], title, "seconds of one core")
    axes[0].set_ylabel("test accuracy, %")
    axes[1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _line(axis: Any, found: list[tuple[float, float]], method: str) -> None:
    if found:
        axis.plot([x for x, _ in found], [y for _, y in found], marker="o", markersize=4, label=method)


def _finish(axis: Any, title: str, along: str) -> None:
    axis.set_xscale("log")
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(along)
    axis.grid(visible=True, alpha=0.3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=FIGURES / "budgets.svg")
    draw(parser.parse_args(arguments).output)


if __name__ == "__main__":
    main()
