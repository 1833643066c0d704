"""What deviations from the paper change, from the recorded cells: the table of docs/errata.md."""

import math
from statistics import mean

from brainsurgeon.paper.reproduce.cells import Cell, read_cells
from experiments.records import RESULTS, read, table

NETWORKS = {
    "mlpnet": "MLPNet",
    "cifarnet": "CIFARNet",
    "resnet20": "ResNet20",
    "mobilenet-0.75": "MobileNetV1 0.75",
}


def effects() -> str:
    """Tabulate the search, the scale of the update and the magnitude rival beside what the paper has in their place."""
    rows = []
    for network, title in NETWORKS.items():
        cells = read_cells(RESULTS, network)
        for sparsity in sorted({cell["sparsity"] for cell in cells}):
            found = {(c["method"], c["seed"]): c for c in cells if c["sparsity"] == sparsity}
            search = _both(found, "algorithm1", "cbs-s")
            scale = _both(found, "cbs@1", "cbs")
            rows.append([title, f"{sparsity:g}", search, scale, _rival_wins(found)])
    return table(["network", "sparsity", "Algorithm 1 → recentred", "whole → scaled update", "rival kept"], rows)


def _both(found: dict[tuple[str, int], Cell], before: str, after: str) -> str:
    means = [[c["accuracy"] for (method, _), c in found.items() if method == name] for name in (before, after)]
    return " → ".join(f"{mean(values):.2f}" for values in means) if all(means) else "–"


def _rival_wins(found: dict[tuple[str, int], Cell]) -> str:
    """Count the seeds in which `cbs` ended with magnitude's mask: the same cost as `mp+cbs-u` but for rounding."""
    seeds = [seed for method, seed in found if method == "cbs" and ("mp+cbs-u", seed) in found]
    pairs = [[found[method, s]["predicted_change"] for method in ("cbs", "mp+cbs-u")] for s in seeds]
    wins = [math.isclose(own, rival, rel_tol=1e-6) for own, rival in pairs]
    return f"{sum(wins)} of {len(wins)}"


def damping_shares() -> str:
    """Tabulate how much of the certified cost is damping, and the gap of the rest: MLPNet's polished masks."""
    rows = []
    for row in read(RESULTS / "exact-networks.json")["rows"]:
        if row["method"] != "polish":
            continue
        damping, cost, lower = row["bounds"]["spectral"], row["cost"], row["lower"]
        rest = (cost - lower) / (cost - damping)
        shown = [f"{row['sparsity']:g}", f"{cost:.6f}", f"{damping:.6f}", f"{damping / cost:.0%}"]
        rows.append([*shown, f"{1 - lower / cost:.1%}", f"{rest:.1%}"])
    head = ["sparsity", "cost", "damping no mask avoids", "its share", "could be saved of the cost", "of the rest"]
    return table(head, rows)
