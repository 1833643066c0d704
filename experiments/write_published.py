"""The paper's algorithm beside the paper's figures, from the recorded runs: three tables of docs/errata.md."""

from statistics import mean, stdev

from brainsurgeon.engine.budget import exact_count
from brainsurgeon.paper.reproduce.cells import Cell, read_cells
from brainsurgeon.paper.reproduce.published import PUBLISHED
from experiments.published import COUNTS, DEVIATIONS, KEPT, SIZE
from experiments.records import RESULTS, read_lines, table

PRESETS = {"cbs-s-published": ("CBS-S", "cbs-s"), "cbs-published": ("CBS", "cbs")}
OTHERS = {"resnet20": "ResNet20", "cifarnet": "CIFARNet", "mobilenet-0.75": "MobileNetV1 0.75"}
DEVIATING = {
    "screened": "draws screened",
    "races": "half of the sample, races",
    "damped": "damping in the selection",
    "ordered once": "π and θ sorted once",
    "all training samples": "L(P) on all 60,000 training images",
}

Values = dict[int, float]
"""Accuracy by seed."""


def _values(cells: list[Cell], method: str, sparsity: float) -> Values:
    return {c["seed"]: c["accuracy"] for c in cells if (c["method"], c["sparsity"]) == (method, sparsity)}


def _shown(values: Values) -> str:
    found = list(values.values())
    return f"{mean(found):.2f}" + (f" ± {stdev(found):.2f}" if len(found) > 1 else "") if found else "–"


def counts() -> str:
    """Tabulate the presets at exact and at published counts, and the part of the distance that counts explain."""
    exact, larger, rows = read_cells(RESULTS, "mlpnet"), read_lines(COUNTS), []
    for method, (title, name) in PRESETS.items():
        for sparsity, kept in KEPT.items():
            ours, theirs = _values(exact, method, sparsity), _values(larger, method, sparsity)
            if not ours or not theirs:
                continue
            paper = PUBLISHED["mlpnet"][name][sparsity]
            rows.append(
                [
                    title,
                    f"{sparsity:g}",
                    f"{paper:.2f}",
                    f"{SIZE - exact_count(sparsity, SIZE):,}: {_shown(ours)}",
                    f"{kept:,}: {_shown(theirs)}",
                    f"{paper - mean(ours.values()):+.2f}",
                    f"{mean(theirs.values()) - mean(ours.values()):+.2f}",
                    f"{paper - mean(theirs.values()):+.2f}",
                ]
            )
    head = ["", "sparsity", "the paper", "exact count", "published count", "distance", "of it counts", "left"]
    return table(head, rows)


def checkpoints() -> str:
    """Tabulate how far magnitude and the presets are from the paper on the networks whose checkpoints are others."""
    rows = []
    for network, title in OTHERS.items():
        cells = read_cells(RESULTS, network)
        for sparsity in PUBLISHED[network]["mp"]:
            names = {"mp": "mp", **{method: name for method, (_, name) in PRESETS.items()}}
            values = {method: _values(cells, method, sparsity) for method in names}
            if all(values.values()):
                apart = [mean(found.values()) - PUBLISHED[network][names[m]][sparsity] for m, found in values.items()]
                rows.append(
                    [title, f"{sparsity:g}", *(f"{each:+.2f}" for each in apart), f"{apart[1] - apart[0]:+.2f}"]
                )
    return table(["network", "sparsity", "MP", "CBS-S", "CBS", "CBS-S beyond MP"], rows)


def deviations() -> str:
    """Tabulate what one deviation from the published preset changes, the mean over the seeds that have both."""
    exact, found, rows = read_cells(RESULTS, "mlpnet"), read_lines(DEVIATIONS), []
    for variant, title in DEVIATING.items():
        lines = [line for line in found if line["variant"] == variant]
        for sparsity in sorted({line["sparsity"] for line in lines}):
            shown, seeds = [], set[int]()
            for method in PRESETS:
                before, after = _values(exact, method, sparsity), _values(lines, method, sparsity)
                seeds = before.keys() & after.keys()
                changes = {seed: after[seed] - before[seed] for seed in seeds}
                shown.append(_signed(changes) if changes else "–")
            rows.append([title, f"{sparsity:g}", *shown, str(len(seeds))])
    return table(["changed", "sparsity", "CBS-S", "CBS", "seeds"], rows)


def _signed(changes: Values) -> str:
    found = list(changes.values())
    return f"{mean(found):+.2f}" + (f" ± {stdev(found):.2f}" if len(found) > 1 else "")
