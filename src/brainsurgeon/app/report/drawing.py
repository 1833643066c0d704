"""Pictures as a few kinds of shape, so that the same drawing becomes SVG for a page, SVG for a file, or PNG.

Shapes carry roles instead of colours ("ink", "grid", "series 0"); a page styles roles for light and dark, a file gets
the light palette.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

LIGHT = {
    "ink": "#1c2430",
    "muted": "#5b6675",
    "grid": "#dfe4ea",
    "paper": "#ffffff",
    "s0": "#2563c9",
    "s1": "#d1480b",
    "s2": "#0b8a5f",
    "s3": "#8f2fb3",
    "s4": "#96720a",
    "s5": "#c2255c",
    "s6": "#0b7f92",
    "s7": "#5f6b7a",
}
DARK = {
    "ink": "#e8ecf2",
    "muted": "#a3aebd",
    "grid": "#333c49",
    "paper": "#171c24",
    "s0": "#79aeff",
    "s1": "#ff9a62",
    "s2": "#52d3a4",
    "s3": "#d79af0",
    "s4": "#e2c254",
    "s5": "#ff86b4",
    "s6": "#55cadb",
    "s7": "#aab4c1",
}
SERIES = 8
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

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


@dataclass(frozen=True)
class Text:
    """A word or a number; `anchor` is start, middle or end."""

    at: Point
    words: str
    role: str = "ink"
    size: float = 13.0
    anchor: str = "start"
    bold: bool = False
    upright: bool = False


Shape = Line | Text


@dataclass
class Drawing:
    """Shapes on a sheet of a given size."""

    width: float
    height: float
    label: str
    shapes: list[Shape] = field(default_factory=list)

    def line(self, points: Sequence[Point], role: str, width: float = 1.0) -> None:
        """Draw a line through points."""
        self.shapes.append(Line(points, role, width))

    def area(self, points: Sequence[Point], role: str, opacity: float = 1.0, title: str = "") -> None:
        """Fill a polygon."""
        self.shapes.append(Line(points, role, 0.0, True, opacity, title))

    def box(self, x: float, y: float, width: float, height: float, role: str, title: str = "") -> None:
        """Fill a rectangle."""
        self.area([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], role, title=title)

    def text(self, x: float, y: float, words: str, role: str = "muted", anchor: str = "start", **more: float) -> None:
        """Write something, its baseline at y."""
        self.shapes.append(Text((x, y), words, role, anchor=anchor, **more))  # type: ignore[arg-type]

    def marker(self, kind: int, x: float, y: float, role: str, title: str = "", size: float = 4.5) -> None:
        """Draw one of a few small figures, told apart without colour."""
        corners, turn = ((20, 0.0), (4, math.pi / 4), (3, -math.pi / 2), (4, 0.0))[kind % 4]
        reach = size * (1.0 if corners == 20 else 1.25)
        angles = [turn + 2 * math.pi * k / corners for k in range(corners)]
        self.area([(x + reach * math.cos(a), y + reach * math.sin(a)) for a in angles], role, title=title)

    def svg(self, standalone: bool = False) -> str:
        """Return the drawing as SVG, with its own colours where it stands alone."""
        inside = "".join(_svg_line(s) if isinstance(s, Line) else _svg_text(s) for s in self.shapes)
        size = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        if not standalone:
            return f'<svg {size} role="img" aria-label="{escape(self.label)}">{inside}</svg>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} width="{self.width:g}" height="{self.height:g}">'
            f"<title>{escape(self.label)}</title><style>{style(LIGHT, 'svg')} text{{font-family:{FONT}}}</style>"
            f'<rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>{inside}</svg>\n'
        )


def style(palette: dict[str, str], where: str) -> str:
    """Return the CSS of a palette's roles."""
    return " ".join(
        f"{where} .{role}{{fill:{colour}}} {where} .{role}-l{{stroke:{colour}}}" for role, colour in palette.items()
    )


def _svg_line(line: Line) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in line.points)
    title = f"<title>{escape(line.title)}</title>" if line.title else ""
    if line.closed:
        opacity = f' opacity="{line.opacity:g}"' if line.opacity < 1 else ""
        return f'<polygon class="{line.role}" points="{points}"{opacity}>{title}</polygon>'
    stroke = f'class="{line.role}-l" fill="none" stroke-width="{line.width:g}"'
    return f'<polyline {stroke} points="{points}">{title}</polyline>'


def _svg_text(text: Text) -> str:
    x, y = text.at
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if text.upright else ""
    weight = ' font-weight="600"' if text.bold else ""
    anchor = "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    return (
        f'<text class="{text.role}" x="{x:.1f}" y="{y:.1f}" font-size="{text.size:g}"{anchor}{weight}{turn}>'
        f"{escape(text.words)}</text>"
    )


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers that cover a range: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]
