"""The paper's figures 3 to 5 and its break-down of run time, drawn from recorded cells. Needs matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.reproduce.cells import Cell
from brainsurgeon.paper.reproduce.tables import TITLES, accuracies

CURVES = {
    "mp": "black",
    "wf-s": "tab:blue",
    "wf": "tab:cyan",
    "cbs-s-published": "tab:olive",
    "cbs-published": "tab:green",
    "cbs-s": "tab:orange",
    "cbs": "tab:red",
}
PARTS = {
    "gradients": ("gradients",),
    "RMP, inference": ("selection/draws/loss",),
    "RMP, other": ("selection/draws",),
    "search, inference": ("selection/search/loss", "selection/search/gradient"),
    "search, other": ("selection/search",),
    "update": ("update", "update/loss"),
}


def pyplot() -> Any:
    """Import matplotlib, or say how to get it."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise BrainsurgeonError("drawing figures needs matplotlib: pip install 'brainsurgeon[plots]'") from error
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "brainsurgeon"  # the same picture is the same file
    import matplotlib.pyplot as plt

    return plt


def means(cells: Sequence[Cell], method: str, value: Any) -> tuple[list[float], list[float]]:
    """Return the sparsities of a method and the mean of a value at each."""
    chosen = [cell for cell in cells if cell["method"] == method]
    sparsities = sorted({cell["sparsity"] for cell in chosen})
    return sparsities, [statistics.mean(value(c) for c in chosen if c["sparsity"] == s) for s in sparsities]


def run_time(cells: dict[str, list[Cell]], path: Path) -> None:
    """Figure 3: run time by sparsity for WF and for our CBS-S and CBS."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(cells), figsize=(4 * len(cells), 3.2), squeeze=False)
    for axis, (network, own) in zip(axes[0], cells.items(), strict=True):
        for method in ("wf", "cbs-s", "cbs"):
            xs, ys = means(own, method, lambda cell: sum(cell["seconds"].values()))
            axis.semilogy(xs, ys, marker="o", label=TITLES[method], color=CURVES[method])
        axis.set(title=network, xlabel="sparsity", ylabel="seconds")
        axis.legend()
    _save(plt, figure, path)


def gains(cells: dict[str, list[Cell]], path: Path) -> None:
    """Figure 4: the accuracy that each step adds: RMP, the search, the update, the scaled update."""
    plt = pyplot()
    steps = (
        ("RMP", "mp", "rmp"),
        ("search", "rmp", "cbs-s"),
        ("update", "cbs-s", "cbs@1"),
        ("scaled update", "cbs-s", "cbs"),
    )
    figure, axes = plt.subplots(1, len(cells), figsize=(4.5 * len(cells), 3.2), squeeze=False)
    for axis, (network, own) in zip(axes[0], cells.items(), strict=True):
        found = accuracies(own)
        for label, before, after in steps:
            xs = sorted({s for m, s in found if m == after} & {s for m, s in found if m == before})
            axis.plot(xs, [_mean(found[after, s]) - _mean(found[before, s]) for s in xs], marker="o", label=label)
        axis.axhline(0, color="grey", linewidth=0.8)
        axis.set(title=network, xlabel="sparsity", ylabel="accuracy gain (points)")
        axis.legend()
    _save(plt, figure, path)


def curves(cells: dict[str, list[Cell]], path: Path) -> None:
    """Figure 5: accuracy by sparsity."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(cells), figsize=(4.5 * len(cells), 3.4), squeeze=False)
    for axis, (network, own) in zip(axes[0], cells.items(), strict=True):
        for method, colour in CURVES.items():
            xs, ys = means(own, method, lambda cell: cell["accuracy"])
            if xs:
                axis.plot(xs, ys, marker="o", label=TITLES[method], color=colour)
        axis.set(title=network, xlabel="sparsity", ylabel="test accuracy (%)")
        axis.legend()
    _save(plt, figure, path)


def break_down(cells: list[Cell], path: Path) -> None:
    """Show where the time of CBS goes, by sparsity."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7, 3.2))
    left: list[float] = []
    for label, keys in PARTS.items():
        xs, ys = means(cells, "cbs", lambda cell, keys=keys: sum(cell["seconds"].get(key, 0.0) for key in keys))
        left = left or [0.0] * len(xs)
        axis.barh([f"{x:g}" for x in xs], ys, left=left, label=label)
        left = [a + b for a, b in zip(left, ys, strict=True)]
    axis.set(xlabel="seconds", ylabel="sparsity")
    axis.legend(fontsize=8)
    _save(plt, figure, path)


def _mean(values: list[float]) -> float:
    return statistics.mean(values)


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
