"""Which pictures a report has, drawn from its record."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from brainsurgeon.app.report import charts
from brainsurgeon.app.report.charts import Series
from brainsurgeon.app.report.drawing import LIGHT, Drawing
from brainsurgeon.app.report.png import mask_png
from brainsurgeon.app.report.record import SAMPLE_LOSS, Outcome, Record, unit

if TYPE_CHECKING:
    from torch import Tensor

MOST_HISTOGRAMS = 13
MOST_MASKS = 8
LARGEST_MASK = 100_000
MOST_LAYERS = 60


def curve(record: Record, metric: str, width: float = charts.NARROW) -> Drawing:
    """Draw a metric against sparsity, one curve a method."""
    found = [(label, [o for o in record.outcomes if o.label == label]) for label in record.labels]
    series = [
        Series(label, [(o.sparsity, value) for o in own if (value := o.value(metric)) is not None])
        for label, own in found
    ]
    return charts.by_sparsity(f"{metric} against sparsity", unit(metric), series, record.of_dense(metric), width)


def times(record: Record, width: float = charts.NARROW) -> Drawing:
    """Draw the run time against sparsity."""
    found = [(label, [o for o in record.outcomes if o.label == label]) for label in record.labels]
    series = [Series(label, [(o.sparsity, o.seconds) for o in own]) for label, own in found]
    return charts.by_sparsity("run time against sparsity", " s", series, None, width)


def layer_bars(outcome: Outcome) -> Drawing:
    """Draw the sparsity of each layer; of very many, the largest."""
    layers = outcome.result["layers"]
    shown = sorted(layers, key=lambda layer: -layer["size"])[:MOST_LAYERS]
    rows = [(layer["name"], layer["pruned"], layer["size"]) for layer in layers if layer in shown]
    return charts.layer_bars("sparsity of each layer", rows)


def histograms(outcome: Outcome) -> list[Drawing]:
    """Draw the weights before and after: all together, and of the largest layers."""
    return [charts.histogram(**one) for one in outcome.histograms[:MOST_HISTOGRAMS]]


TRACES = (
    ("stages", "stage", "loss", "loss on held-out samples"),
    ("stages", "stage", "pruned", "weights pruned"),
    ("search", "step", "cost", "objective of the search"),
    ("search", "step", "loss", SAMPLE_LOSS),
    ("search", "step", "swaps", "swaps taken"),
)


def traces(outcome: Outcome) -> list[Drawing]:
    """Draw how it went: the loss stage by stage; the objective of a search and the sample loss, step by step."""
    drawn = []
    for stage, axis, key, title in TRACES:
        events = [event for event in outcome.result["trace"] if event["stage"] == stage and event.get(key) is not None]
        points = [(float(event["done"]), float(event[key])) for event in events]
        once = all(a < b for (a, _), (b, _) in pairwise(points))  # the many searches of a staged run say little
        if len(points) > 1 and once:
            drawn.append(charts.trace(f"{title} by {axis}", axis, [Series(title, points)]))
    return drawn


def run_time(outcome: Outcome) -> Drawing:
    """Draw where the time went."""
    return charts.break_down("run time", outcome.result["seconds"])


def masks(outcome: Outcome) -> dict[str, bytes]:
    """Return pictures of the masks of small layers, as PNG by layer name."""
    path = outcome.folder / "masks.safetensors"
    if not path.is_file():
        return {}
    small = [la for la in outcome.result["layers"] if la["size"] <= LARGEST_MASK and len(la["shape"]) > 1]
    shown = sorted(small, key=lambda layer: -layer["size"])[:MOST_MASKS]
    tensors = _read(path, [layer["name"] for layer in small if layer in shown])
    return {name: mask_png(mask, LIGHT["s0"]) for name, mask in tensors.items()}


def _read(path: Any, names: list[str]) -> dict[str, Tensor]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in names if name in file.keys()}  # noqa: SIM118
