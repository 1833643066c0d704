"""The table of docs/layerwise.md, which write_tables writes, from the recorded runs on language models."""

from experiments.records import RESULTS, Record, read_lines, table

TITLES = {
    "mp": "MP",
    "wanda": "Wanda",
    "sparsegpt": "SparseGPT",
    "layerwise": "`layerwise`",
    "auto, quick": "`auto`, quick",
    "auto": "`auto`, trained",
}

SHARED = 4.0
"""With a load of so many processes, other runs had a part of the machine: seconds tell nothing."""


SHORT = ("wanda", "sparsegpt", "layerwise", "auto")
"""Methods of the short table, which is of sparsities below 0.9."""


def language_table(name: str = "smollm2-135m", digits: int = 1, short: bool = False) -> str:
    """Tabulate perplexity by method, budget and sparsity, with the seconds in brackets."""
    runs = read_lines(RESULTS / f"language-{name}.jsonl")
    if short:
        runs = [run for run in runs if _key(run)[0] in SHORT and not _key(run)[2] and run["sparsity"] < 0.9]
    columns = sorted({(run["pattern"] != "default", run["sparsity"]) for run in runs})
    head = ["method", "budget", *("2:4" if structured else f"{sparsity:g}" for structured, sparsity in columns)]
    rows = []
    for method in TITLES:
        for budget in ("uniform", "global"):
            for costs in ("", "none"):
                own = [run for run in runs if _key(run) == (method, budget, costs)]
                if own:
                    title = TITLES[method] + (" without costs" if costs else "")
                    rows.append([title, budget, *(_cell(own, column, digits) for column in columns)])
    return table(head, rows)


def _key(run: Record) -> tuple[str, str, str]:
    given = run.get("given", {})
    quick = ", quick" if given.get("effort") == "quick" else ""
    return run["method"] + quick, run["budget"], given.get("costs", "")


def _cell(runs: list[Record], column: tuple[bool, float], digits: int) -> str:
    found = [run for run in runs if (run["pattern"] != "default", run["sparsity"]) == column]
    if not found:
        return "–"
    run = found[-1]
    alone = run.get("load", 0.0) < SHARED
    perplexity = f"{run['perplexity']:,.{digits if run['perplexity'] < 1000 else 0}f}"
    return perplexity + (f" ({run['seconds']:.0f} s)" if alone else "")
