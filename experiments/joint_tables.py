"""The tables of the joint search, from the lines that experiments/joint.py recorded; write_tables.py asks for them."""

from collections.abc import Callable, Iterator
from statistics import mean
from typing import Any

METHODS = {
    "mp+cbs-u": "MP", "wf-s+cbs-u": "WF-S", "wide+cbs-u": "wide", "cbs": "CBS", "joint+cbs-u": "joint",
    "joint-from-cbs-s+cbs-u": "joint from CBS-S",
}  # fmt: skip
NETWORKS = {"mlpnet": "MLPNet", "resnet20": "ResNet20"}
DEVICES = {"1 CPU threads": "one CPU thread"}

Line = dict[str, Any]


def accuracy(lines: list[Line]) -> str:
    """Tabulate test accuracy; in brackets that of the whole update, where it is another."""

    def shown(cell: list[Line]) -> str:
        part, whole = (f"{mean(c['accuracy'] for c in some):.2f}" for some in (cell, [c["whole"] for c in cell]))
        return part if part == whole else f"{part} ({whole})"

    return _by_sparsity(lines, shown, best=lambda cell: -round(mean(c["accuracy"] for c in cell), 2))


def costs(lines: list[Line]) -> str:
    """Tabulate a thousand times the cost of the mask, without an update and after the best one."""

    def shown(cell: list[Line]) -> str:
        return " → ".join(f"{1000 * mean(c[part] for c in cell):.3g}" for part in ("selection_cost", "joint_cost"))

    return _by_sparsity(lines, shown, best=lambda cell: float(f"{mean(c['joint_cost'] for c in cell):.3g}"))


def sample_loss(lines: list[Line]) -> str:
    """Tabulate the sample loss after the update."""

    def rounded(cell: list[Line]) -> float:
        return round(mean(c["sample_loss"] for c in cell), 3)

    return _by_sparsity(lines, lambda cell: f"{rounded(cell):.3f}", best=rounded)


def seconds(lines: list[Line]) -> str:
    """Tabulate the seconds of the selection, from its quickest sparsity to its slowest, by what it ran on."""
    rows = []
    for network, gradients in dict.fromkeys((line["network"], line["num_gradients"]) for line in lines):
        here = [c for c in lines if (c["network"], c["num_gradients"]) == (network, gradients)]
        for device in dict.fromkeys(c["versions"]["device"] for c in here):
            row = [NETWORKS[network], f"{gradients:,}", DEVICES.get(device, device)]
            for method in METHODS:
                found = [c for c in here if (c["versions"]["device"], c["method"]) == (device, method)]
                means = [mean(c["seconds"] for c in cell) for cell in _groups(found)]
                row.append(f"{min(means):.1f} – {max(means):.1f}" if means else "–")
            rows.append(row)
    return _table(["network", "K", "on", *METHODS.values()], rows)


def _by_sparsity(lines: list[Line], shown: Callable[[list[Line]], str], best: Callable[[list[Line]], float]) -> str:
    """Return a row for each network, K and sparsity, with the mean over seeds of each method, the best one bold."""
    rows = []
    for group in _groups(lines):
        cells = {m: [line for line in group if line["method"] == m] for m in METHODS}
        first = min(best(cell) for cell in cells.values() if cell)
        row = [NETWORKS[group[0]["network"]], f"{group[0]['num_gradients']:,}", f"{group[0]['sparsity']:g}"]
        for cell in cells.values():
            words = shown(cell) if cell else "–"
            row.append(f"**{words}**" if cell and best(cell) == first else words)
        rows.append(row)
    return _table(["network", "K", "sparsity", *METHODS.values()], rows)


def _groups(lines: list[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each network, K and sparsity."""
    keys = sorted({(line["network"], line["num_gradients"], line["sparsity"]) for line in lines})
    for key in keys:
        yield [line for line in lines if (line["network"], line["num_gradients"], line["sparsity"]) == key]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])
