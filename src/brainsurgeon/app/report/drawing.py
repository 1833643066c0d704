"""Pictures as a few kinds of shape, so that the same drawing becomes SVG for a page, SVG for a file, or PNG.

Shapes carry roles instead of colours ("ink", "grid", "s0" for the first series); a page styles roles for light and
dark, a file gets the light palette.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from brainsurgeon.app.report.templating import render

ROLES = ("ink", "muted", "grid", "paper", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
_LIGHT = "#1c2430 #5b6675 #dfe4ea #ffffff #2563c9 #d1480b #0b8a5f #8f2fb3 #96720a #c2255c #0b7f92 #5f6b7a"
_DARK = "#e8ecf2 #a3aebd #333c49 #171c24 #79aeff #ff9a62 #52d3a4 #d79af0 #e2c254 #ff86b4 #55cadb #aab4c1"
LIGHT, DARK = (dict(zip(ROLES, palette.split(), strict=True)) for palette in (_LIGHT, _DARK))
SERIES = 8

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A polyline, or with `closed` a filled polygon."""

    points: Sequence[Point]
    role: str
    width: float = 1.0
    closed: bool = False
    opacity: float = 1.0
    title: str = ""

    @property
    def path(self) -> str:
        """The points as SVG has them."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


@dataclass(frozen=True)
class Text:
    """A word or a number, its baseline at y; `anchor` is start, middle or end."""

    x: float
    y: float
    words: str
    role: str = "muted"
    anchor: str = "start"
    size: float = 13.0
    bold: bool = False


@dataclass
class Drawing:
    """Shapes on a sheet of a given size."""

    width: float
    height: float
    label: str
    shapes: list[Line | Text] = field(default_factory=list)

    def line(self, points: Sequence[Point], role: str, width: float = 1.0) -> None:
        """Draw a line through points."""
        self.shapes.append(Line(points, role, width))

    def area(self, points: Sequence[Point], role: str, opacity: float = 1.0, title: str = "") -> None:
        """Fill a polygon."""
        self.shapes.append(Line(points, role, 0.0, True, opacity, title))

    def box(self, x: float, y: float, width: float, height: float, role: str, title: str = "") -> None:
        """Fill a rectangle."""
        self.area([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], role, title=title)

    def text(self, x: float, y: float, words: str, **how: Any) -> None:
        """Write something; `how` as `Text` has it."""
        self.shapes.append(Text(round(x, 1), round(y, 1), words, **how))

    def marker(self, kind: int, x: float, y: float, role: str, title: str = "", size: float = 4.5) -> None:
        """Draw one of a few small figures, told apart without colour."""
        corners, turn = ((20, 0.0), (4, math.pi / 4), (3, -math.pi / 2), (4, 0.0))[kind % 4]
        reach = size * (1.0 if corners == 20 else 1.25)
        angles = [turn + 2 * math.pi * k / corners for k in range(corners)]
        self.area([(x + reach * math.cos(a), y + reach * math.sin(a)) for a in angles], role, title=title)

    def svg(self, standalone: bool = False) -> Markup:
        """Return the drawing as SVG, with its own colours where it stands alone."""
        size = {"width": f"{self.width:g}", "height": f"{self.height:g}"}
        colours = style(LIGHT) if standalone else ""
        return render(
            "drawing.svg", standalone=standalone, label=self.label, shapes=self.shapes, colours=colours, **size
        )


def style(palette: dict[str, str]) -> Markup:
    """Return the CSS of a palette's roles."""
    return Markup("").join(
        Markup("svg .{0}{{fill:{1}}} svg .{0}-l{{stroke:{1}}} ").format(*part) for part in palette.items()
    )


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers that cover a range: multiples of 1, 2 or 5 times a power of ten."""
    if not high - low > 1e-12 * max(abs(low), abs(high), 1e-100):  # what differs less is the same to a reader
        high = low + (abs(low) or 1.0)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
