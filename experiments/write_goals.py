"""The tables of docs/goals.md, which write_tables writes: goals against a grid, and sweeps beside whole runs."""

from experiments.goals import PATH
from experiments.records import Record, read_lines, table
from experiments.write_budgets import NETWORKS


def goals_table() -> str:
    """Tabulate what each goal run found beside what the grid of whole runs shows, and what both took."""
    runs = read_lines(PATH)
    rows = []
    for run in (run for run in runs if run["kind"] == "goal"):
        if not (grid := _grid(runs, run)):
            continue
        least = run["dense"]["judged"] - 100 * run["drop"]
        kept = [one["sparsity"] for one in grid if one["networks"][0]["judged"] >= least]
        lost = [one["sparsity"] for one in grid if one["networks"][0]["judged"] < least]
        found = run["networks"][0]
        rows.append(
            [
                NETWORKS[run["network"]],
                f"{run['drop']:.0%}",
                _gradients(run),
                f"{found['sparsity']:g} ({found['judged']:.2f})",
                f"{len(found['settings']['goal']['tries'])}, {run['cpu_seconds']:.0f} s",
                f"{max(kept, default=0):g}" + (f" (not {min(lost):g})" if lost else ""),
                f"{len(grid)} × {_gradients(grid[0])}, {sum(one['cpu_seconds'] for one in grid):.0f} s",
            ]
        )
    head = ["network", "drop", "sample gradients", "found (accuracy)", "tries, CPU", "kept by the grid", "grid, CPU"]
    return table(head, rows)


def sweeps_table() -> str:
    """Tabulate the test accuracy of a sweep's networks beside whole runs at the same sparsities."""
    runs = read_lines(PATH)
    rows = []
    for run in (run for run in runs if run["kind"] == "sweep"):
        grid = _grid(runs, run)
        for name, networks, seconds, gradients in (
            ("one sweep", run["networks"], run["cpu_seconds"], run["max_gradients"]),
            (
                "a run for each",
                [one["networks"][0] for one in grid],
                sum(one["cpu_seconds"] for one in grid),
                sum(one["max_gradients"] for one in grid),
            ),
        ):
            shown = ", ".join(f"{network['test']:.2f} at {network['sparsity']:g}" for network in networks)
            rows.append([NETWORKS[run["network"]], name, f"{gradients:,}", f"{seconds:.0f} s", shown])
    return table(["network", "", "sample gradients", "CPU", "test accuracy"], rows)


def _gradients(run: Record) -> str:
    return f"{run['max_gradients']:,}" if run["max_gradients"] else run["method"]


def _grid(runs: list[Record], like: Record) -> list[Record]:
    """Return the whole runs of a network, with as many sample gradients each as another run had in all."""
    keys = {"kind": "grid", "network": like["network"], "max_gradients": like["max_gradients"]}
    keys |= {"method": like["method"]}
    return sorted((run for run in runs if keys.items() <= run.items()), key=lambda run: float(run["sparsity"]))
