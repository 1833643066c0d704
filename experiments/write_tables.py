"""Write the tables of measured figures into the documentation, from the recorded runs.

    python experiments/write_tables.py

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; a test compares the pages with what this would write.
"""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from types import ModuleType
from typing import Any

from brainsurgeon.paper.reproduce.cells import Cell, read_cells
from brainsurgeon.paper.reproduce.published import PUBLISHED
from brainsurgeon.pruning.settings import FISHERS

ROOT = Path(__file__).parent.parent
RESULTS, BENCHMARKS = ROOT / "experiments/results", ROOT / "benchmarks/results"
TITLES = {"auto": "auto", "mp": "MP", "wf": "WF", "cbs-s": "CBS-S", "cbs": "CBS", "mp+cbs-u": "MP + CBS-U"}
NETWORKS = {"mlpnet": "MLPNet, MNIST", "resnet20": "ResNet20, CIFAR-10"}


def write() -> dict[Path, str]:
    """Return every page with its tables filled in."""
    pattern = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.S)
    pages = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        pages[page] = pattern.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)
    return pages


def choosing() -> str:
    """Tabulate the methods at a few sparsities."""
    cells = {network: read_cells(RESULTS, network) for network in NETWORKS}
    known = {cell["method"] for found in cells.values() for cell in found}
    methods = [method for method in ("mp", "wf", "mp+cbs-u", "cbs-s", "cbs", "auto") if method in known]
    rows = []
    for network, sparsities in (("mlpnet", (0.5, 0.8, 0.9, 0.95, 0.98)), ("resnet20", (0.5, 0.7, 0.8, 0.9))):
        for sparsity in sparsities:
            found = [_accuracies(cells[network], method, sparsity) for method in methods]
            rows.append([NETWORKS[network], f"{sparsity:g}", *(f"{mean(f):.2f}" if f else "–" for f in found)])
    return _table(["network", "sparsity", *(TITLES[method] for method in methods)], rows)


def paper() -> str:
    """Tabulate the paper's methods at high sparsities, the paper's figures in brackets."""
    methods, rows = ("mp", "wf", "cbs-s", "cbs"), []
    for network, dense, sparsities in (("mlpnet", 93.97, (0.9, 0.95, 0.98)), ("resnet20", 91.43, (0.7, 0.8, 0.9))):
        cells, published = read_cells(RESULTS, network), PUBLISHED[network]
        for sparsity in sparsities:
            title = f"{NETWORKS[network]} (dense {dense})" if sparsity == sparsities[0] else ""
            both = ((mean(_accuracies(cells, m, sparsity)), published[m][sparsity]) for m in methods)
            rows.append([title, f"{sparsity:.2f}", *(f"{ours:.2f} ({theirs:.2f})" for ours, theirs in both)])
    return _table(["", "sparsity", *(TITLES[method] for method in methods)], rows)


def staged() -> str:
    """Tabulate what pruning in stages reaches."""
    head, *rows = _script("experiments/write_beyond.py").overview()
    return _table(head, rows)


def _accuracies(cells: list[Cell], method: str, sparsity: float) -> list[float]:
    return [cell["accuracy"] for cell in cells if (cell["method"], cell["sparsity"]) == (method, sparsity)]


def finetuned(network: str) -> str:
    """Tabulate accuracy before and after fine-tuning, mean over seeds."""
    file = RESULTS / f"finetune-{network}.jsonl"
    if not file.exists():
        return "*Not recorded yet.*"
    cells = [json.loads(line) for line in file.read_text().splitlines()]
    methods = list(dict.fromkeys(cell["method"] for cell in cells))
    rows = []
    for sparsity in sorted({cell["sparsity"] for cell in cells}):
        row = [f"{sparsity:g}"]
        for method in methods:
            found = [c for c in cells if (c["sparsity"], c["method"]) == (sparsity, method)]
            means = [sum(c[part] for c in found) / len(found) for part in ("before", "after")] if found else []
            row.append(" → ".join(f"{mean:.2f}" for mean in means) or "–")
        rows.append(row)
    seeds = {method: len({c["seed"] for c in cells if c["method"] == method}) for method in methods}
    counted = ", ".join(f"{TITLES.get(method, method)} {count}" for method, count in seeds.items())
    devices = ", ".join(sorted({cell["versions"]["device"] for cell in cells}))
    how = sorted({(cell.get("samples"), cell["settings"]["epochs"]) for cell in cells}, key=str)
    trained = ", ".join(f"{epochs} epochs" + (f" of {samples:,} images" if samples else "") for samples, epochs in how)
    note = f"\n\nSeeds: {counted}; {trained}. Recorded on {devices}."
    return _table(["sparsity", *(TITLES.get(method, method) for method in methods)], rows) + note


def freeze() -> str:
    """Tabulate what holding the zeros costs."""
    names = {"mlpnet": "MLPNet", "resnet20": "ResNet20", "mobilenet-0.75": "MobileNetV1 0.75, 96×96"}
    rows = [
        [
            names[c["network"]],
            c["optimizer"],
            *(_short(c[key]) for key in ("without_ms", "with_ms", "hooks_ms")),
            f"{c['share']:.2%}",
        ]
        for c in json.loads((BENCHMARKS / "freeze.json").read_text())["cells"]
    ]
    head = ["network", "optimizer", "a step without, ms", "with, ms", "the hooks alone, ms", "share of a step"]
    return _table(head, rows)


def worth() -> str:
    """Tabulate sizes and times."""
    return _script("benchmarks/worth.py").tables(json.loads((BENCHMARKS / "worth.json").read_text())["cells"])


def searches() -> str:
    """Tabulate what each search gains in what time."""
    return _script("benchmarks/searches_figure.py").table(json.loads((BENCHMARKS / "searches.json").read_text()))


def joint(table: str) -> str:
    """Tabulate one measure of the joint search and of its rivals."""
    lines = [json.loads(line) for line in (RESULTS / "joint.jsonl").read_text().splitlines()]
    return getattr(_script("experiments/joint_tables.py"), table)(lines)


def labels() -> str:
    """Tabulate what the labels of the Fisher matrix change, mean over seeds ± standard deviation."""
    cells = [json.loads(line) for line in (RESULTS / "labels.jsonl").read_text().splitlines()]
    found: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for c in cells:
        key = (c["network"], c["rows"], c["method"], c["sparsity"])
        found.setdefault(key, {}).setdefault(c["fisher"], []).append(c["accuracy"])
    rows = []
    for (network, count, method, sparsity), by in sorted(found.items()):
        spread = [f"{mean(by[f]):.2f}" + (f" ± {stdev(by[f]):.2f}" if len(by[f]) > 1 else "") for f in FISHERS]
        seeds = str(max(map(len, by.values())))
        rows.append([NETWORKS[network], f"{count:,}", TITLES[method], f"{sparsity:g}", *spread, seeds])
    return _table(["network", "rows K", "method", "sparsity", *FISHERS, "seeds"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "beyond": lambda: _script("experiments/write_beyond.py").tables(),
    "beyond-beside": lambda: _script("experiments/write_beyond.py").beside(),
    "choosing": choosing,
    "finetune-mlpnet": lambda: finetuned("mlpnet"),
    "finetune-resnet20": lambda: finetuned("resnet20"),
    "freeze": freeze,
    "joint-accuracy": lambda: joint("accuracy"),
    "joint-costs": lambda: joint("costs"),
    "joint-loss": lambda: joint("sample_loss"),
    "joint-seconds": lambda: joint("seconds"),
    "labels": labels,
    "readme-paper": paper,
    "readme-staged": staged,
    "searches": searches,
    "worth": worth,
}


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    for path, content in write().items():
        path.write_text(content)
