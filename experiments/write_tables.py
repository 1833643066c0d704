"""Write the tables of measured figures into the documentation, from the recorded runs.

    python -m experiments.write_tables

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; a test compares the pages with what this would write.
"""

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from brainsurgeon.paper.reproduce.cells import Cell, read_cells
from brainsurgeon.paper.reproduce.published import PUBLISHED
from brainsurgeon.paper.reproduce.tables import TITLES as PAPER_TITLES
from brainsurgeon.paper.reproduce.tables import YARDSTICK
from brainsurgeon.pruning.one_shot import FISHERS
from experiments.ablation import ablation_table
from experiments.finetune import before_and_after
from experiments.first_cuts import first_cuts_table
from experiments.forecasts import forecast_table
from experiments.hurried import hurried_table
from experiments.kills import kills_table
from experiments.layer_growth import growth_table
from experiments.memory import memory_table
from experiments.promises import promises_table
from experiments.records import BENCHMARKS, DOCS, RESULTS, ROOT, read, read_lines, read_runs, table
from experiments.samples import samples_table
from experiments.searches_figure import searches_table
from experiments.structured import structured_table
from experiments.unseen import ROUNDED, unseen_table
from experiments.worth import short
from experiments.worth import tables as worth_tables
from experiments.write_beyond import beside, beyond_tables
from experiments.write_budgets import alone_table, budgets_table, short_table
from experiments.write_errata import damping_shares, effects
from experiments.write_goals import goals_table, sweeps_table
from experiments.write_language import language_table
from experiments.write_published import checkpoints, counts, deviations
from experiments.write_side import quick_table, resnet50_table, semi_structured_table

TITLES = {"staged": "staged", "mp": "MP", "wf": "WF", "cbs-s": "CBS-S", "cbs": "CBS", "mp+cbs-u": "MP + CBS-U"}
PAPER = ("mp", "wf", "cbs-s-published", "cbs-s", "cbs-published", "cbs")
NETWORKS = {"mlpnet": "MLPNet, MNIST", "resnet20": "ResNet20, CIFAR-10"}


def write() -> dict[Path, str]:
    """Return every page with its tables filled in."""
    pattern = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.S)
    pages = {}
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        text = page.read_text()
        pages[page] = pattern.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)
    return pages


def choosing() -> str:
    """Tabulate the methods at a few sparsities."""
    cells = {network: read_cells(RESULTS, network) for network in NETWORKS}
    known = {cell["method"] for found in cells.values() for cell in found}
    methods = [method for method in ("mp", "wf", "mp+cbs-u", "cbs-s", "cbs", "staged") if method in known]
    rows = []
    for network, sparsities in (("mlpnet", (0.5, 0.8, 0.9, 0.95, 0.98)), ("resnet20", (0.5, 0.7, 0.8, 0.9))):
        for sparsity in sparsities:
            found = [_accuracies(cells[network], method, sparsity) for method in methods]
            rows.append([NETWORKS[network], f"{sparsity:g}", *(f"{mean(f):.2f}" if f else "–" for f in found)])
    return table(["network", "sparsity", *(TITLES[method] for method in methods)], rows)


def paper() -> str:
    """Tabulate the paper's methods at high sparsities, the paper's figures in brackets, beside ours."""
    rows = []
    for network, dense, sparsities in (("mlpnet", 93.97, (0.9, 0.95, 0.98)), ("resnet20", 91.43, (0.7, 0.8, 0.9))):
        cells = read_cells(RESULTS, network)
        for sparsity in sparsities:
            title = f"{NETWORKS[network]} (dense {dense})" if sparsity == sparsities[0] else ""
            rows.append([title, f"{sparsity:.2f}", *(_beside_paper(cells, network, m, sparsity) for m in PAPER)])
    return table(["", "sparsity", *(PAPER_TITLES[method] for method in PAPER)], rows)


def _beside_paper(cells: list[Cell], network: str, method: str, sparsity: float) -> str:
    found = _accuracies(cells, method, sparsity)
    ours = f"{mean(found):.2f}" if found else "–"
    printed = None if method in ("cbs-s", "cbs") else PUBLISHED[network][YARDSTICK.get(method, method)][sparsity]
    return ours if printed is None else f"{ours} ({printed:.2f})"


def _accuracies(cells: list[Cell], method: str, sparsity: float) -> list[float]:
    return [cell["accuracy"] for cell in cells if (cell["method"], cell["sparsity"]) == (method, sparsity)]


def finetuned(network: str) -> str:
    """Tabulate accuracy before and after fine-tuning, mean over seeds."""
    cells = read_runs(RESULTS / f"finetune-{network}.jsonl")
    methods = dict.fromkeys(cell["method"] for cell in cells)
    seeds = {method: len({c["seed"] for c in cells if c["method"] == method}) for method in methods}
    counted = ", ".join(f"{TITLES.get(method, method)} {count}" for method, count in seeds.items())
    devices = ", ".join(sorted({cell["versions"]["device"] for cell in cells}))
    how = sorted({(cell.get("samples"), cell["settings"]["epochs"]) for cell in cells}, key=str)
    trained = ", ".join(f"{epochs} epochs" + (f" of {samples:,} images" if samples else "") for samples, epochs in how)
    return f"{before_and_after(cells, TITLES)}\n\nSeeds: {counted}; {trained}. Recorded on {devices}."


def freeze() -> str:
    """Tabulate what holding the zeros costs."""
    names = {"mlpnet": "MLPNet", "resnet20": "ResNet20", "mobilenet-0.75": "MobileNetV1 0.75, 96×96"}
    rows = [
        [
            names[c["network"]],
            c["optimizer"],
            *(short(c[key]) for key in ("without_ms", "with_ms", "hooks_ms")),
            f"{c['share']:.2%}",
        ]
        for c in read(BENCHMARKS / "freeze.json")["cells"]
    ]
    head = ["network", "optimizer", "a step without, ms", "with, ms", "the hooks alone, ms", "share of a step"]
    return table(head, rows)


def labels() -> str:
    """Tabulate what the labels of the Fisher matrix change, mean over seeds ± standard deviation."""
    cells = read_lines(RESULTS / "labels.jsonl")
    found: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for c in cells:
        key = (c["network"], c["rows"], c["method"], c["sparsity"])
        found.setdefault(key, {}).setdefault(c["fisher"], []).append(c["accuracy"])
    rows = []
    for (network, count, method, sparsity), by in sorted(found.items()):
        spread = [f"{mean(by[f]):.2f}" + (f" ± {stdev(by[f]):.2f}" if len(by[f]) > 1 else "") for f in FISHERS]
        seeds = str(max(map(len, by.values())))
        rows.append([NETWORKS[network], f"{count:,}", TITLES[method], f"{sparsity:g}", *spread, seeds])
    return table(["network", "rows K", "method", "sparsity", *FISHERS, "seeds"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "ablation": ablation_table,
    "beyond": beyond_tables,
    "beyond-beside": beside,
    "budgets": budgets_table,
    "readme-budgets": short_table,
    "first-cuts": first_cuts_table,
    "samples": samples_table,
    "choosing": choosing,
    "errata-counts": counts,
    "goals": goals_table,
    "hurried": hurried_table,
    "goals-sweeps": sweeps_table,
    "errata-checkpoints": checkpoints,
    "errata-deviations": deviations,
    "errata-effects": effects,
    "exact-damping": damping_shares,
    "finetune-mlpnet": lambda: finetuned("mlpnet"),
    "finetune-resnet20": lambda: finetuned("resnet20"),
    "freeze": freeze,
    "kills": kills_table,
    "labels": labels,
    "language": language_table,
    "layer-growth": growth_table,
    "stories": lambda: language_table("stories15M", 2),
    "memory": memory_table,
    "memory-cuda": lambda: memory_table("cuda"),
    "forecasts": forecast_table,
    "promises": promises_table,
    "quick": quick_table,
    "unseen": unseen_table,
    "unseen-bfloat16": lambda: unseen_table(ROUNDED),
    "resnet50": resnet50_table,
    "semi-structured": semi_structured_table,
    "readme-language": lambda: language_table(short=True),
    "readme-paper": paper,
    "alone": alone_table,
    "searches": searches_table,
    "structured": structured_table,
    "worth": lambda: worth_tables(read(BENCHMARKS / "worth.json")["cells"]),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill in the tables of every page."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(
        arguments
    )
    for path, content in write().items():
        path.write_text(content)


if __name__ == "__main__":
    main()
