"""The tables that compare methods on one network without training, and ResNet50, which write_tables writes."""

from experiments.records import BENCHMARKS, RESULTS, Record, read, read_lines, table

NETWORKS = {
    "mlpnet": "MLPNet",
    "cifarnet": "CIFARNet",
    "resnet20": "ResNet20",
    "mobilenet-0.75": "MobileNetV1 0.75",
    "vit": "a small ViT, CIFAR-10",
    "resnet50": "ResNet50",
}
TITLES = {"mp": "MP", "wf-s": "WF-S", "wanda": "Wanda", "sparsegpt": "SparseGPT", "layerwise": "`layerwise`"}
QUICK = "`auto`, quick"
DENSE_PERPLEXITY = 24.9
"""Of SmolLM2-135M, as experiments.language prints it."""


def quick_table() -> str:
    """Tabulate what is reached at once: `auto` with the effort "quick" beside the methods that it must not be below."""
    rows = []
    for network, title in NETWORKS.items():
        runs = read_lines(RESULTS / f"side-{network}.jsonl")
        for sparsity in (0.5, 0.7, 0.9):
            cells = [_accuracy(runs, method, sparsity) for method in (*TITLES, "auto-quick")]
            if cells[-1] != "–":
                rows.append([f"{title} ({runs[0]['dense']:.2f})", f"{sparsity:g}", *cells])
    return table(["network (dense)", "sparsity", *TITLES.values(), QUICK], [*rows, *_quick_language()])


def _quick_language() -> list[list[str]]:
    """Return the rows of the language model, in perplexity: the lower the better."""
    runs = [
        run
        for run in read_lines(RESULTS / "language-smollm2-135m.jsonl")
        if run["pattern"] == "default" and run.get("given", {}) in ({}, {"effort": "quick"})
    ]
    rows = []
    for sparsity in (0.5, 0.7, 0.9):
        own = [run for run in runs if run["sparsity"] == sparsity]
        found = {
            method: [r["perplexity"] for r in own if r["method"] == method and not r["given"]] for method in TITLES
        }
        found["auto-quick"] = [run["perplexity"] for run in own if run["given"]]
        if found["auto-quick"]:
            cells = [f"{min(values):,.1f}" if values else "–" for values in found.values()]
            rows.append([f"SmolLM2-135M, perplexity ({DENSE_PERPLEXITY})", f"{sparsity:g}", *cells])
    return rows


def resnet50_table() -> str:
    """Tabulate ResNet50 by method and sparsity."""
    runs = read_lines(RESULTS / "side-resnet50.jsonl")
    sparsities = (0.5, 0.7, 0.8)
    once = [run for run in runs if run["method"] != "auto"]
    methods = [(once, method, title) for method, title in TITLES.items() if method != "wf-s"]
    trained = {(run["max_gradients"], bool(run.get("augment"))) for run in runs if run["method"] == "auto"}
    for gradients, turned in sorted(trained):
        own = [run for run in runs if (run.get("max_gradients"), bool(run.get("augment"))) == (gradients, turned)]
        methods.append((own, "auto", f"`auto`, {gradients:,} sample gradients{', crops and flips' if turned else ''}"))
    rows = [[title, *(_accuracy(own, method, sparsity) for sparsity in sparsities)] for own, method, title in methods]
    return table(["method", *(f"{sparsity:g}" for sparsity in sparsities)], rows)


def _accuracy(runs: list[Record], method: str, sparsity: float) -> str:
    """Return the accuracy of a method; of one that was run with both budgets the better."""
    names = (method, f"{method}-uniform")
    found = [run["accuracy"] for run in runs if run["method"] in names and run["sparsity"] == sparsity]
    return f"{max(found):.2f}" if found else "–"


def semi_structured_table() -> str:
    """Tabulate the time of 2:4 layers in torch's kernels beside dense ones."""
    rows = [
        [f"{row['outputs']:,} × {row['inputs']:,}", f"{row['rows']:,}", *_milliseconds(row)]
        for row in read(BENCHMARKS / "semi-structured.json")["rows"]
    ]
    return table(["outputs × inputs", "rows", "dense, ms", "2:4, ms"], rows)


def _milliseconds(row: Record) -> list[str]:
    return [f"{row['milliseconds'][kind]:.3f}" for kind in ("dense", "2:4")]
