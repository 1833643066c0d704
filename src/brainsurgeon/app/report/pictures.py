"""Which pictures a report has, drawn from its record."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from brainsurgeon.app.report import charts
from brainsurgeon.app.report.charts import Series
from brainsurgeon.app.report.drawing import Drawing
from brainsurgeon.app.report.names import distinct
from brainsurgeon.app.report.png import mask_png, why_no_png
from brainsurgeon.app.report.record import SAMPLE_LOSS, Outcome, Record, unit
from brainsurgeon.app.report.saved import Layer
from brainsurgeon.errors import BrainsurgeonError

if TYPE_CHECKING:
    from torch import Tensor

MOST_HISTOGRAMS = 13
MOST_MASKS = 8
LARGEST_MASK = 100_000
MOST_LAYERS = 300


def curve(record: Record, metric: str, width: float = charts.NARROW) -> Drawing:
    """Draw a metric against sparsity, one curve a method."""
    series = [
        Series(
            label, [(o.sparsity, y) for o in record.outcomes if o.label == label and (y := o.value(metric)) is not None]
        )
        for label in record.labels
    ]
    return charts.by_sparsity(f"{metric} against sparsity", unit(metric), series, record.of_dense(metric), width)


def times(record: Record, width: float = charts.NARROW) -> Drawing:
    """Draw the run time against sparsity."""
    series = [
        Series(label, [(o.sparsity, o.seconds) for o in record.outcomes if o.label == label]) for label in record.labels
    ]
    return charts.by_sparsity("run time against sparsity", " s", series, None, width)


def layer_bars(outcome: Outcome) -> Drawing:
    """Draw the sparsity of each layer; of very many, the largest."""
    layers = outcome.result.layers
    least = sorted((layer.size for layer in layers), reverse=True)[:MOST_LAYERS][-1]
    shown = [layer for layer in layers if layer.size >= least][:MOST_LAYERS]
    title = "sparsity of each layer" if len(shown) == len(layers) else f"sparsity of the {len(shown)} largest layers"
    shares = [layer.pruned / layer.size for layer in shown]
    tips = [f"{layer.name}: {layer.pruned:,} of {layer.size:,} weights pruned" for layer in shown]
    names = distinct([layer.name for layer in shown])
    return charts.bars(title, list(zip(names, shares, (f"{s:.2%}" for s in shares), tips, strict=True)), "s0")


def run_time(outcome: Outcome) -> Drawing:
    """Draw where the time went, the longest first."""
    parts = sorted(((value, name) for name, value in outcome.result.seconds.items() if value > 0), reverse=True)
    rows = [
        (name, value / parts[0][0], f"{value:,.2f} s  {value / outcome.seconds:.0%}", f"{name}: {value:,.3f} s")
        for value, name in parts
    ]
    return charts.bars("run time", rows, "s2")


def histograms(outcome: Outcome) -> list[Drawing]:
    """Draw the weights before and after: all together, and of the largest layers."""
    shown = outcome.measured.histograms[:MOST_HISTOGRAMS]
    return [charts.histogram(one.name, one.reach, one.before, one.after) for one in shown]


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
        steps = [step for step in outcome.result.trace if step.stage == stage]
        points = [(step.done, value) for step in steps if (value := getattr(step, key)) is not None]
        once = all(a < b for (a, _), (b, _) in pairwise(points))  # the many searches of a staged run say little
        if len(points) > 1 and once:
            drawn.append(charts.trace(f"{title} by {axis}", axis, [Series(title, points)]))
    return drawn


def masks(outcome: Outcome) -> list[tuple[Layer, bytes]]:
    """Return pictures of the masks of small layers, as PNG; none where they cannot be drawn."""
    path = outcome.folder / "masks.safetensors"
    if why_no_png() or not path.is_file():
        return []
    small = [la for la in outcome.result.layers if la.size <= LARGEST_MASK and len(la.shape) > 1]
    shown = sorted(small, key=lambda layer: -layer.size)[:MOST_MASKS]
    return [
        (layer, mask_png(mask)) for layer in small if layer in shown and (mask := _mask(outcome, layer)) is not None
    ]


def _mask(outcome: Outcome, layer: Layer) -> Tensor | None:
    import torch
    from safetensors import SafetensorError, safe_open

    path = outcome.folder / "masks.safetensors"
    try:
        with safe_open(path, "pt") as file:
            mask = file.get_tensor(layer.name) if layer.name in file.keys() else None  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise BrainsurgeonError(f"{path} is damaged ({error}): restore it, or run again") from error
    if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != layer.shape):
        raise BrainsurgeonError(
            f"{path} holds a mask of {layer.name!r} of shape {tuple(mask.shape)} and type {mask.dtype}, expected "
            f"{layer.shape} and booleans as in result.json: restore it, or run again"
        )
    return mask
