"""PNG, drawn by matplotlib where it is installed."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from brainsurgeon.app.report.drawing import LIGHT, Drawing, Line

if TYPE_CHECKING:
    from torch import Tensor

SHARP = 2
"""Pixels a unit."""
_SIDES = {"start": "left", "middle": "center", "end": "right"}


def why_no_png() -> str:
    """Say why there can be no PNG here; nothing where there can."""
    if find_spec("matplotlib") is not None:
        return ""
    return "pictures as PNG, and of masks, need matplotlib: pip install 'brainsurgeon[plots]'"


def draw_png(drawing: Drawing) -> bytes:
    """Return a drawing as PNG, twice its size for sharp print."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon

    figure = Figure(figsize=(drawing.width / 72, drawing.height / 72), facecolor=LIGHT["paper"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.axis("off")
    for shape in drawing.shapes:
        colour = LIGHT[shape.role]
        if not isinstance(shape, Line):
            side, weight = _SIDES[shape.anchor], "bold" if shape.bold else "normal"
            words = axes.text(shape.x, shape.y, shape.words, color=colour, fontsize=0.9 * shape.size, ha=side)
            words.set(fontweight=weight, parse_math=False)
        elif shape.closed:
            axes.add_artist(Polygon(shape.points, facecolor=colour, alpha=shape.opacity, linewidth=0, clip_on=False))
        else:
            axes.plot(*zip(*shape.points, strict=True), color=colour, linewidth=shape.width, clip_on=False)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=72 * SHARP)
    return file.getvalue()


def mask_png(pruned: Tensor) -> bytes:
    """Return a mask as a PNG of one pixel a weight: coloured where the weight is kept, clear where it is pruned.

    Rows are outputs; what feeds them (inputs, kernel positions) lies along the row. A tall mask is laid on its side.
    """
    from matplotlib.image import imsave

    flat = pruned.reshape(pruned.shape[0], -1)
    rows = (flat.T if flat.shape[0] > flat.shape[1] else flat).cpu().numpy()
    kept = np.array([*bytes.fromhex(LIGHT["s0"][1:]), 255], dtype=np.uint8)
    file = io.BytesIO()
    imsave(file, np.where(rows[..., None], np.uint8(0), kept), format="png")
    return file.getvalue()
