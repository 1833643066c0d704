"""The tables of docs/auto.md, which write_tables writes: `auto` beside gradual magnitude pruning at the same cost."""

from collections.abc import Iterator
from statistics import mean, stdev

from brainsurgeon.pruning.auto.method import EFFORTS
from experiments.records import RESULTS, Record, read_lines, table

NETWORKS = {"mlpnet": "MLPNet", "resnet20": "ResNet20", "mobilenet-0.75": "MobileNetV1 0.75", "cifarnet": "CIFARNet"}
Key = tuple[str, int | None, int, float]
"""Network, samples, sample gradients, sparsity."""
METHODS = ("auto", "magnitude", "magnitude, distilled", "magnitude, sgd, distilled")


def budgets_table() -> str:
    """Tabulate accuracy and seconds by network, samples, gradients, sparsity and method."""
    rows = [[*_named(key), f"{key[2]:,}", f"{key[3]:g}", *cells] for key, cells in _rows()]
    return table(["network", "samples", "sample gradients", "sparsity", *METHODS], rows)


def short_table() -> str:
    """Tabulate the rows that have the default budget."""
    rows = [[*_named(key), f"{key[3]:g}", *cells] for key, cells in _rows() if key[2] == EFFORTS["standard"]]
    return table(["network", "samples", "sparsity", *METHODS], rows)


def _rows() -> Iterator[tuple[Key, list[str]]]:
    paths = sorted(RESULTS.glob("budgets-*.jsonl"))
    runs = [run for path in paths if not path.stem.endswith("-alone") for run in read_lines(path)]
    for key in _keys(runs):
        own = [[run for run in runs if _key(run) == key and run["method"] == method] for method in METHODS]
        if own[0]:
            yield key, list(map(_cell, own))


def _named(key: Key) -> list[str]:
    return [NETWORKS[key[0]], "all" if key[1] is None else f"{key[1]:,}"]


def alone_table() -> str:
    """Tabulate the seconds on a GPU that had no other work."""
    runs = [run for path in sorted(RESULTS.glob("budgets-*-alone.jsonl")) for run in read_lines(path)]
    rows = []
    for key in _keys(runs):
        timed = [[run["seconds"] for run in runs if _key(run) == key and run["method"] == method] for method in METHODS]
        own, *peers = (mean(seconds) if seconds else None for seconds in timed)
        shown = [f"{seconds:.1f}" if seconds else "–" for seconds in (own, *peers)]
        ratios = [f"{own / peer:.2f}" if own and peer else "–" for peer in peers]
        rows.append([NETWORKS[key[0]], f"{key[2]:,}", f"{key[3]:g}", *shown, *ratios])
    head = ["network", "sample gradients", "sparsity", *(f"{method}, s" for method in METHODS)]
    return table([*head, *(f"auto / {method}" for method in METHODS[1:])], rows)


def _keys(runs: list[Record]) -> list[Key]:
    """Return what the rows are of, those of all samples after those of few."""
    return sorted({_key(run) for run in runs}, key=lambda key: (key[0], key[1] is None, *key[1:]))


def _key(run: Record) -> Key:
    return run["network"], run["samples"], run["max_gradients"], run["sparsity"]


def _cell(runs: list[Record]) -> str:
    """Return the mean accuracy, its spread, the seeds and the seconds of one core; a shared GPU's tell nothing."""
    if not runs:
        return "–"
    accuracies = [run["accuracy"] for run in runs]
    spread = f" ± {stdev(accuracies):.2f}" if len(runs) > 1 else ""
    seconds = "" if on_gpu(runs[0]) else f"; {mean(run['cpu_seconds'] for run in runs):.0f} s"
    return f"{mean(accuracies):.2f}{spread} ({len(runs)}{seconds})"


def on_gpu(run: Record) -> bool:
    """Say whether a run was made on a GPU."""
    return "cuda" in str(run["settings"]["device"])
