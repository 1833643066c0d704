"""The two tables of the README, which write_tables.py writes, from the recorded runs."""

from statistics import mean

from brainsurgeon.reproduce.cells import Cell
from brainsurgeon.reproduce.published import PUBLISHED

ROWS = (
    ("mlpnet", "MLPNet, MNIST (dense 93.97)", (0.9, 0.95, 0.98)),
    ("resnet20", "ResNet20, CIFAR-10 (dense 91.43)", (0.7, 0.8, 0.9)),
)
METHODS = {"mp": "MP", "wf": "WF", "cbs-s": "CBS-S", "cbs": "CBS"}
STAGED = {
    ("mlpnet", None): "MLPNet, all samples",
    ("mlpnet", 1000): "MLPNet, 1,000 samples in all",
    ("resnet20", None): "ResNet20, all samples",
    ("resnet20", 1000): "ResNet20, 1,000 samples in all",
    ("mobilenet-0.75", 1000): "MobileNetV1 0.75, 1,000 images in all (dense 66.9)",
}
SPARSITIES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def paper(cells: dict[str, list[Cell]]) -> list[list[str]]:
    """Return the head and the rows of one-shot accuracies, the paper's in brackets."""
    table = [["", "sparsity", *METHODS.values()]]
    for network, title, sparsities in ROWS:
        for sparsity in sparsities:
            row = [title if sparsity == sparsities[0] else "", f"{sparsity:.2f}"]
            for method in METHODS:
                here = [c["accuracy"] for c in cells[network] if (c["method"], c["sparsity"]) == (method, sparsity)]
                row.append(f"{mean(here):.2f} ({PUBLISHED[network][method][sparsity]:.2f})")
            table.append(row)
    return table


def staged(runs: dict[tuple[str, int | None], list[dict]]) -> list[list[str]]:
    """Return the head and the rows of what pruning in stages reaches, with the most gradients that were tried."""
    table = [["", *(f"{sparsity:g}" for sparsity in SPARSITIES)]]
    for key, title in STAGED.items():
        most = max(run["max_gradients"] for run in runs[key])
        here = [run for run in runs[key] if run["max_gradients"] == most]
        by = {s: [run["accuracy"] for run in here if run["sparsity"] == s] for s in SPARSITIES}
        table.append([title, *(f"{mean(found):.2f}" if found else "–" for found in by.values())])
    return table
