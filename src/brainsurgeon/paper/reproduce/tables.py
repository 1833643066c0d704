"""Tables of ours beside the paper's, from recorded cells."""

from __future__ import annotations

import statistics
from collections import defaultdict

from brainsurgeon.paper.reproduce.cells import Cell
from brainsurgeon.paper.reproduce.published import DENSE, PUBLISHED

TITLES = {
    "mp": "MP",
    "rmp": "RMP",
    "wf-s": "WF-S",
    "cbs-s-published": "CBS-S as published",
    "algorithm1": "CBS-S, Algorithm 1",
    "cbs-s": "CBS-S, ours",
    "wf": "WF",
    "cbs-published": "CBS as published",
    "algorithm1+cbs-u": "CBS, Algorithm 1",
    "cbs": "CBS, ours",
    "mp+cbs-u": "MP + CBS-U",
    "wf-s+cbs-u": "WF-S + CBS-U",
    "cbs@1": "CBS, whole update",
}
COLUMNS = (
    "mp",
    "wf-s",
    "cbs-s-published",
    "algorithm1",
    "cbs-s",
    "wf",
    "cbs-published",
    "algorithm1+cbs-u",
    "cbs",
)
ABLATION = ("mp", "mp+cbs-u", "wf", "wf-s+cbs-u")
# What the paper printed for its own algorithm is also the yardstick of ours.
YARDSTICK = {
    "cbs-s-published": "cbs-s",
    "cbs-published": "cbs",
    "algorithm1": "cbs-s",
    "algorithm1+cbs-u": "cbs",
}


def accuracies(cells: list[Cell]) -> dict[tuple[str, float], list[float]]:
    """Gather the accuracies of all seeds by method and sparsity."""
    found: dict[tuple[str, float], list[float]] = defaultdict(list)
    for cell in cells:
        found[cell["method"], cell["sparsity"]].append(cell["accuracy"])
    return found


def table(cells: list[Cell], network: str, columns: tuple[str, ...] = COLUMNS) -> str:
    """Return a Markdown table: mean ± spread over the seeds, and the published figure in brackets."""
    found = accuracies(cells)
    columns = tuple(method for method in columns if any(key[0] == method for key in found))
    lines = [
        "| sparsity | pruned | " + " | ".join(TITLES[method] for method in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for sparsity in sorted({cell["sparsity"] for cell in cells}):
        counts = {(cell["pruned"], cell["size"]) for cell in cells if cell["sparsity"] == sparsity}
        exact = ", ".join(f"{pruned:,} of {size:,}" for pruned, size in sorted(counts))
        values = [_entry(found.get((method, sparsity), []), network, method, sparsity) for method in columns]
        lines.append(f"| {sparsity:.2f} | {exact} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def _entry(values: list[float], network: str, method: str, sparsity: float) -> str:
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 and statistics.stdev(values) > 0 else ""
    printed = PUBLISHED[network].get(YARDSTICK.get(method, method), {}).get(sparsity)
    return f"{statistics.mean(values):.2f}{spread}" + (f" ({printed:.2f})" if printed is not None else "")


def heading(network: str, cells: list[Cell]) -> str:
    """Return a line on what the table shows."""
    seeds = len({cell["seed"] for cell in cells})
    dense = DENSE[network]
    return f"{network}: mean over {seeds} seed(s) ± standard deviation; in brackets the paper's (dense {dense})"
