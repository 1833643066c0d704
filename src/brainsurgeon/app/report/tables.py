"""Which tables a report has, made from its record."""

from __future__ import annotations

from brainsurgeon.app.report.forms import Table
from brainsurgeon.app.report.record import SAMPLE_LOSS, Outcome, Record, unit

NONE = "–"


def comparison(record: Record, metric: str | None = None, counted: bool = True) -> Table:
    """Make one row a sparsity, one column a method; `counted` adds the weights left."""
    metric = metric or record.metric
    rows, best = [], set()
    for number, sparsity in enumerate(record.sparsities):
        found = [record.at(label, sparsity) for label in record.labels]
        some = next(outcome.result for outcome in found if outcome is not None)
        first = (f"{sparsity:g}", f"{some.size - some.pruned:,}")[: 1 + counted]
        cells, top = [shown(outcome, metric) for outcome in found], record.best(sparsity, metric)
        rows.append((*first, *cells))
        if len(found) > 1 and top is not None:
            best |= {(number, k) for k, cell in enumerate(cells, len(first)) if cell == shown(top, metric)}
    head = ("sparsity", "weights left")[: 1 + counted]
    return Table((*head, *record.labels), tuple(rows), frozenset(best))


def everything(record: Record) -> Table:
    """Make one row an outcome, with all that was measured."""
    scores = [metric for metric in record.metrics if metric != SAMPLE_LOSS]
    head = ("method", "sparsity", "pruned", "of", *scores, "sample loss before", "sample loss after", "seconds")
    rows = [
        (
            *_about(o),
            f"{o.result.pruned:,}",
            f"{o.result.size:,}",
            *(shown(o, metric) for metric in scores),
            NONE if o.result.loss_before is None else figure(o.result.loss_before),
            shown(o, SAMPLE_LOSS),
            f"{o.seconds:.2f}",
        )
        for o in record.outcomes
    ]
    return Table(head, tuple(rows))


def costs(record: Record) -> Table | None:
    """Make one row an outcome, with what it takes on disk and to run; columns of what nobody measured are left out."""
    runtimes = dict.fromkeys(la.runtime for o in record.outcomes for la in o.measured.cost.latencies)
    head = ["method", "sparsity", "file, bytes", "dense, bytes", "compressed, bytes"]
    head += ["multiply-adds, dense", "multiply-adds, effective", "batch", *(f"{name}, ms" for name in runtimes)]
    rows = []
    for o in record.outcomes:
        cost, times = o.measured.cost, {la.runtime: la.milliseconds for la in o.measured.cost.latencies}
        counts = (cost.bytes_dense, cost.bytes_compressed, cost.multiply_adds, cost.multiply_adds_sparse, cost.batch)
        told = [NONE if count is None else f"{count:,}" for count in (o.bytes_on_disk, *counts)]
        told += [NONE if (ms := times.get(name)) is None else f"{ms:.4g}" for name in runtimes]
        rows.append((*_about(o), *told))
    kept = [0, 1, *(k for k in range(2, len(head)) if any(row[k] != NONE for row in rows))]
    return Table(tuple(head[k] for k in kept), tuple(tuple(row[k] for k in kept) for row in rows)) if kept[2:] else None


def layers(outcome: Outcome) -> Table:
    """Count every layer exactly."""
    result = outcome.result
    counted = [(la.name, "×".join(map(str, la.shape)), la.pruned, la.size) for la in result.layers]
    counted.append(("all", "", result.pruned, result.size))
    rows = [(name, shape, f"{pruned:,}", f"{size:,}", f"{pruned / size:.2%}") for name, shape, pruned, size in counted]
    return Table(("layer", "shape", "pruned", "of", "sparsity"), tuple(rows))


def shown(outcome: Outcome | None, metric: str) -> str:
    """Return a value as a table shows it."""
    value = None if outcome is None else outcome.value(metric)
    if value is None:
        return "not finite" if outcome is not None and outcome.diverged(metric) else NONE
    return figure(value, metric)


def figure(value: float, metric: str = "") -> str:
    """Return a number: per cents with two digits behind the point, others with four where they are small."""
    if unit(metric) and abs(value) < 1e6:
        return f"{value:.2f}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 100 or value == 0 else f"{value:.6g}"


def _about(outcome: Outcome) -> tuple[str, str]:
    return outcome.label, f"{outcome.sparsity:g}"
