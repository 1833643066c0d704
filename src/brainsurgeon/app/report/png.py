"""PNG: drawings through Pillow, masks by hand."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from brainsurgeon.app.report.drawing import LIGHT, Drawing, Line, Text
from brainsurgeon.errors import BrainsurgeonError

if TYPE_CHECKING:
    from torch import Tensor

SCALE, SMOOTH = 2, 2
"""Pixels a unit; and how many times finer it is drawn before it is made smooth."""


def draw_png(drawing: Drawing) -> bytes:
    """Return a drawing as PNG, twice its size for sharp print."""
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError as error:
        raise BrainsurgeonError("pictures as PNG need Pillow: pip install 'brainsurgeon[plots]'") from error
    factor = SCALE * SMOOTH
    image = Image.new("RGB", (round(drawing.width * factor), round(drawing.height * factor)), LIGHT["paper"])
    pen = ImageDraw.Draw(image, "RGBA")
    for shape in drawing.shapes:
        if isinstance(shape, Line):
            _line(pen, shape, factor)
    image = image.resize((round(drawing.width * SCALE), round(drawing.height * SCALE)), Image.Resampling.LANCZOS)
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            _text(image, shape)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _line(pen: Any, line: Line, factor: int) -> None:
    points = [(x * factor, y * factor) for x, y in line.points]
    colour = _rgb(line.role)
    if line.closed:
        pen.polygon(points, fill=(*colour, round(255 * line.opacity)))
    elif len(points) > 1:
        pen.line(points, fill=colour, width=max(1, round(line.width * factor)), joint="curve")


def _text(image: Any, text: Text) -> None:
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(text.size * SCALE)
    anchor = {"start": "l", "middle": "m", "end": "r"}[text.anchor] + "s"
    x, y = (value * SCALE for value in text.at)
    colour = _rgb(text.role)
    if not text.upright:
        ImageDraw.Draw(image).text((x, y), text.words, fill=colour, font=font, anchor=anchor)
        return
    length = int(font.getlength(text.words)) + 2
    height = int(text.size * SCALE * 1.4)
    sheet = Image.new("L", (length, height), 0)
    ImageDraw.Draw(sheet).text((length / 2, text.size * SCALE), text.words, fill=255, font=font, anchor="ms")
    sheet = sheet.rotate(90, expand=True)
    image.paste(Image.new("RGB", sheet.size, colour), (round(x - text.size * SCALE), round(y - length / 2)), sheet)


def _rgb(role: str) -> tuple[int, int, int]:
    colour = LIGHT[role]
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def mask_png(pruned: Tensor, colour: str) -> bytes:
    """Return a mask as a PNG of one pixel a weight: coloured where the weight is kept, clear where it is pruned.

    Rows are outputs; what feeds them (inputs, kernel positions) lies along the row. A tall mask is laid on its side.
    """
    flat = pruned.reshape(pruned.shape[0], -1)
    rows = (flat.T if flat.shape[0] > flat.shape[1] else flat).cpu().numpy()
    height, width = rows.shape
    packed = np.packbits(~rows, axis=1)
    lines = b"".join(b"\0" + line.tobytes() for line in packed)
    palette = bytes(3) + bytes(int(colour[k : k + 2], 16) for k in (1, 3, 5))
    header = struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", palette), (b"tRNS", b"\0\xff"), (b"IDAT", zlib.compress(lines, 9)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in (*parts, (b"IEND", b"")))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
