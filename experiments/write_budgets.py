"""The tables of docs/auto.md, which write_tables writes: `auto` beside gradual magnitude pruning at the same cost."""

from statistics import mean, stdev

from experiments.records import RESULTS, Record, read_lines, table

NETWORKS = {"mlpnet": "MLPNet", "resnet20": "ResNet20", "mobilenet-0.75": "MobileNetV1 0.75", "cifarnet": "CIFARNet"}


def budgets_table() -> str:
    """Tabulate accuracy and seconds by network, samples, gradients, sparsity and method."""
    runs = [run for path in sorted(RESULTS.glob("budgets-*.jsonl")) for run in read_lines(path)]
    methods = list(dict.fromkeys(run["method"] for run in runs))
    keys = sorted({_key(run) for run in runs}, key=str)
    rows = []
    for key in keys:
        network, samples, gradients, sparsity = key
        own = [[run for run in runs if _key(run) == key and run["method"] == method] for method in methods]
        amount = "all" if samples is None else f"{samples:,}"
        rows.append([NETWORKS[network], amount, f"{gradients:,}", f"{sparsity:g}", *map(_cell, own)])
    return table(["network", "samples", "sample gradients", "sparsity", *methods], rows)


def _key(run: Record) -> tuple[str, int | None, int, float]:
    return run["network"], run["samples"], run["max_gradients"], run["sparsity"]


def _cell(runs: list[Record]) -> str:
    """Return the mean accuracy, its spread, the seeds and the seconds of one core, or of the GPU."""
    if not runs:
        return "–"
    accuracies = [run["accuracy"] for run in runs]
    spread = f" ± {stdev(accuracies):.2f}" if len(runs) > 1 else ""
    clock = "seconds" if "cuda" in str(runs[0]["settings"]["device"]) else "cpu_seconds"
    return f"{mean(accuracies):.2f}{spread} ({len(runs)}; {mean(run[clock] for run in runs):.0f} s)"
