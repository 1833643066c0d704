"""The tables of docs/beyond.md, which write_tables.py writes, and its picture, from the recorded runs in stages.

Usage: python experiments/write_beyond.py (for the picture)
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
TITLES = {
    "mlpnet": "MLPNet (MNIST, dense 93.97)",
    "resnet20": "ResNet20 (CIFAR-10, dense 91.43)",
    "mobilenet-0.75": "MobileNetV1 0.75 (ImageNet, dense 66.9)",
}
GOALS = {
    ("mlpnet", None): {0.5: 96.6, 0.7: 96.6, 0.8: 96.6, 0.9: 96.3, 0.95: 95.9, 0.98: 92.0},
    ("resnet20", None): {0.5: 91.1, 0.7: 90.5, 0.8: 88.9, 0.9: 82.0},
    ("mlpnet", 1000): {0.9: 93.5, 0.95: 92.0, 0.98: 86.0},
    ("resnet20", 1000): {0.7: 88.0, 0.8: 82.0, 0.9: 62.0},
    ("mobilenet-0.75", 1000): {0.5: 65.0, 0.6: 61.0, 0.7: 55.0, 0.8: 35.0},
}


def runs() -> dict[tuple[str, int | None], list[dict]]:
    """Return the recorded runs by network and number of training samples."""
    found = defaultdict(list)
    for path in sorted((HERE / "results").glob("beyond-*.jsonl")):
        for line in path.read_text().splitlines():
            run = json.loads(line)
            found[run["network"], run["samples"]].append(run)
    return found


def tables() -> str:
    """Return the tables of all networks."""
    found = runs()
    return "\n".join(table(key, found[key]) for key in sorted(found, key=str)).rstrip("\n")


def most_thorough(lines: list[dict]) -> list[dict]:
    """Return the runs with the most gradients that were tried; smaller budgets are in the picture."""
    most = max(line["max_gradients"] for line in lines)
    return [line for line in lines if line["max_gradients"] == most]


def table(key: tuple[str, int | None], lines: list[dict]) -> str:
    """Return the table of one network at one number of samples."""
    network, samples = key
    amount = "all training samples" if samples is None else f"{samples:,} training samples"
    text = f"### {TITLES[network]}, {amount}\n\n"
    lines = most_thorough(lines)
    head = ("sparsity", "accuracy", "seeds", "goal", "with batch norms recalibrated", "sample gradients", "seconds")
    text += f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for sparsity in sorted({line["sparsity"] for line in lines}):
        here = [line for line in lines if line["sparsity"] == sparsity]
        accuracies = [line["accuracy"] for line in here]
        spread = f" ± {stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
        again = [line["accuracy_recalibrated"] for line in here if "accuracy_recalibrated" in line]
        goal = GOALS.get(key, {}).get(sparsity)
        devices = "/".join(sorted({line["versions"]["device"] for line in here}))
        cells = (
            f"{sparsity:.2f}",
            f"**{mean(accuracies):.2f}**{spread}",
            str(len(here)),
            f"{goal:.1f}" if goal else "–",
            f"{mean(again):.2f}" if again else "–",
            f"{mean(line['sample_gradients'] for line in here):,.0f}",
            f"{mean(line['seconds'] for line in here):.0f} ({devices})",
        )
        text += f"| {' | '.join(cells)} |\n"
    return text


OVERVIEW = {
    ("mlpnet", None): "MLPNet, all samples",
    ("mlpnet", 1000): "MLPNet, 1,000 samples in all",
    ("resnet20", None): "ResNet20, all samples",
    ("resnet20", 1000): "ResNet20, 1,000 samples in all",
    ("mobilenet-0.75", 1000): "MobileNetV1 0.75, 1,000 images in all (dense 66.9)",
}


def overview() -> list[list[str]]:
    """Return the head and the rows of what the README shows."""
    sparsities, found = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98), runs()
    rows = [["", *(f"{sparsity:g}" for sparsity in sparsities)]]
    for key, title in OVERVIEW.items():
        here = most_thorough(found[key])
        by = [[line["accuracy"] for line in here if line["sparsity"] == sparsity] for sparsity in sparsities]
        rows.append([title, *(f"{mean(accuracies):.2f}" if accuracies else "–" for accuracies in by)])
    return rows


CHITA = {
    "mlpnet": ("CHITA++, tuned on test images", 240_000, {0.5: 96.49, 0.8: 96.53, 0.9: 96.26, 0.95: 95.65, 0.98: 89.3}),
    "resnet20": ("CHITA++, published", None, {0.5: 91.04, 0.7: 90.38, 0.8: 88.72, 0.9: 79.32}),
}
"""Figures to stand beside ours: those for MLPNet from a run of its code, those for ResNet20 quoted."""


def beside() -> str:
    """Return the table of MLPNet with all samples, at each number of gradients, beside CHITA++."""
    lines = runs()["mlpnet", None]
    _, cost, theirs = CHITA["mlpnet"]
    text = f"| sample gradients | {' | '.join(map(str, theirs))} | seconds |\n|{'---|' * (len(theirs) + 2)}\n"
    text += f"| CHITA++, {cost:,} | {' | '.join(map(str, theirs.values()))} | 216 and more |\n"
    for most in sorted({line["max_gradients"] for line in lines}):
        here = [[line for line in lines if (line["max_gradients"], line["sparsity"]) == (most, r)] for r in theirs]
        seconds = [mean(line["seconds"] for line in some) for some in here]
        accuracies = (f"{mean(line['accuracy'] for line in some):.2f}" for some in here)
        text += f"| `auto`, {most:,} | {' | '.join(accuracies)} | {min(seconds):.0f} to {max(seconds):.0f} |\n"
    return text.rstrip("\n")


def picture(found: dict[tuple[str, int | None], list[dict]]) -> None:
    """Draw accuracy against sample gradients for every recorded run, with CHITA++ beside it."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    networks = sorted({network for network, _ in found})
    figure, axes = pyplot.subplots(1, len(networks), figsize=(4.6 * len(networks), 4.0), squeeze=False)
    for axis, network in zip(axes[0], networks, strict=True):
        lines = [line for (name, _), some in sorted(found.items(), key=str) if name == network for line in some]
        for line in lines:
            axis.scatter(
                line["sample_gradients"],
                line["accuracy"],
                color=_shade(line["sparsity"]),
                s=22,
                marker="o" if line["samples"] is None else "^",
                label=f"{line['sparsity']:.2f}",
            )
        name, cost, theirs = CHITA.get(network, ("", None, {}))
        for sparsity, accuracy in theirs.items():
            if cost:
                axis.scatter(cost, accuracy, color=_shade(sparsity), marker="x", s=36)
            else:
                axis.axhline(accuracy, color=_shade(sparsity), linestyle=":", linewidth=1)
        axis.set(title=network, xlabel="sample gradients", xscale="log", ylabel="test accuracy")
        handles, labels = axis.get_legend_handles_labels()
        unique = dict(sorted(zip(labels, handles, strict=True), key=lambda pair: pair[0]))
        mark = f"\n{'x' if cost else 'dotted'}: {name}" if name else ""
        title = "sparsity (circles: all samples,\ntriangles: 1,000)" + mark
        axis.legend(unique.values(), unique.keys(), fontsize=6, title=title, title_fontsize=6)
    figure.tight_layout()
    figure.savefig(DOCS / "figures" / "beyond.svg", metadata={"Date": None})


def _shade(sparsity: float) -> tuple[float, ...]:
    from matplotlib import pyplot

    return tuple(pyplot.get_cmap("viridis")((sparsity - 0.4) / 0.65))


if __name__ == "__main__":
    picture(runs())
