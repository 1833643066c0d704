"""The tables of docs/beyond.md, which write_tables writes, and its picture, from the recorded runs in stages.

python -m experiments.write_beyond     # the picture
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from experiments.plots import pyplot_for_svg
from experiments.records import FIGURES, RESULTS, Record, read_runs, table

TITLES = {
    "mlpnet": "MLPNet (MNIST, dense 93.97)",
    "resnet20": "ResNet20 (CIFAR-10, dense 91.43)",
}
CHITA: dict[str, tuple[str, int | None, dict[float, float]]] = {
    "mlpnet": ("CHITA++, tuned on test images", 240_000, {0.5: 96.49, 0.8: 96.53, 0.9: 96.26, 0.95: 95.65, 0.98: 89.3}),
}
"""Figures to stand beside ours, from a run of its code; the run was made apart and is not recorded."""

Runs = dict[tuple[str, int | None], list[Record]]


def runs() -> Runs:
    """Return the recorded runs by network and number of training samples."""
    found: Runs = defaultdict(list)
    for path in sorted(RESULTS.glob("beyond-*.jsonl")):
        for run in read_runs(path):
            found[run["network"], run["samples"]].append(run)
    return found


def most_thorough(lines: list[Record]) -> list[Record]:
    """Return the runs with the most gradients that were tried; smaller budgets are in the picture."""
    most = max(line["max_gradients"] for line in lines)
    return [line for line in lines if line["max_gradients"] == most]


def training_share(line: Record) -> float:
    """Return the share of a run's sample gradients that were steps of training.

    Older records do not hold it: it is what the gradients grew by in those entries of the trace that are trainings.
    """
    if "training_gradients" in line:
        return line["training_gradients"] / line["sample_gradients"]
    before, trained = 0.0, 0.0
    for entry in line["stages_trace"]:
        trained += entry["gradients"] - before if "stride" in entry or "rate" in entry else 0.0
        before = entry["gradients"]
    return trained / line["sample_gradients"]


def beyond_tables() -> str:
    """Return the tables of all networks."""
    found = runs()
    return "\n\n".join(_of_network(key, found[key]) for key in sorted(found, key=str))


def _of_network(key: tuple[str, int | None], lines: list[Record]) -> str:
    network, samples = key
    amount = "all training samples" if samples is None else f"{samples:,} training samples"
    head = ("sparsity", "accuracy", "seeds", "sample gradients", "of them training", "seconds")
    rows, lines = [], most_thorough(lines)
    for sparsity in sorted({line["sparsity"] for line in lines}):
        here = [line for line in lines if line["sparsity"] == sparsity]
        accuracies = [line["accuracy"] for line in here]
        spread = f" ± {stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
        devices = "/".join(sorted({line["versions"]["device"] for line in here}))
        rows.append(
            [
                f"{sparsity:.2f}",
                f"**{mean(accuracies):.2f}**{spread}",
                str(len(here)),
                f"{mean(line['sample_gradients'] for line in here):,.0f}",
                f"{mean(map(training_share, here)):.0%}",
                f"{mean(line['seconds'] for line in here):.0f} ({devices})",
            ]
        )
    return f"### {TITLES[network]}, {amount}\n\n{table(head, rows)}"


def beside() -> str:
    """Return the table of MLPNet with all samples, at each number of gradients, beside CHITA++."""
    lines = runs()["mlpnet", None]
    _, cost, theirs = CHITA["mlpnet"]
    rows = [[f"CHITA++, {cost:,}", *map(str, theirs.values()), "216 or more (extrapolated)"]]
    for most in sorted({line["max_gradients"] for line in lines}):
        here = [[line for line in lines if (line["max_gradients"], line["sparsity"]) == (most, r)] for r in theirs]
        seconds = [mean(line["seconds"] for line in some) for some in here]
        accuracies = (f"{mean(line['accuracy'] for line in some):.2f}" for some in here)
        rows.append([f"`staged`, {most:,}", *accuracies, f"{min(seconds):.0f} to {max(seconds):.0f}"])
    return table(["sample gradients", *map(str, theirs), "seconds"], rows)


def picture(found: Runs, path: Path) -> None:
    """Draw accuracy against sample gradients for every recorded run, with CHITA++ beside it."""
    pyplot = pyplot_for_svg()
    networks = sorted({network for network, _ in found})
    figure, axes = pyplot.subplots(1, len(networks), figsize=(4.6 * len(networks), 4.0), squeeze=False)
    for axis, network in zip(axes[0], networks, strict=True):
        lines = [line for (name, _), some in sorted(found.items(), key=str) if name == network for line in some]
        _panel(axis, network, lines, pyplot.get_cmap("viridis"))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _panel(axis: Any, network: str, lines: list[Record], colours: Any) -> None:
    def shade(sparsity: float) -> Any:
        return colours((sparsity - 0.4) / 0.65)

    for line in lines:
        mark = "o" if line["samples"] is None else "^"
        colour, label = shade(line["sparsity"]), f"{line['sparsity']:.2f}"
        axis.scatter(line["sample_gradients"], line["accuracy"], color=colour, s=22, marker=mark, label=label)
    name, cost, theirs = CHITA.get(network, ("", None, {}))
    for sparsity, accuracy in theirs.items():
        axis.scatter(cost, accuracy, color=shade(sparsity), marker="x", s=36)
    axis.set(title=network, xlabel="sample gradients", xscale="log", ylabel="test accuracy")
    handles, labels = axis.get_legend_handles_labels()
    unique = dict(sorted(zip(labels, handles, strict=True), key=lambda pair: pair[0]))
    title = "sparsity (circles: all samples,\ntriangles: 1,000)" + (f"\nx: {name}" if name else "")
    axis.legend(unique.values(), unique.keys(), fontsize=6, title=title, title_fontsize=6)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=FIGURES / "beyond.svg")
    picture(runs(), parser.parse_args(arguments).output)


if __name__ == "__main__":
    main()
