"""Pages in a browser: what sticks out of its frame, and whether elements close in order."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import browser
import pytest

NASTY = '<script>alert(1)</script>"&[/b]%_$'
needs_browser = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium on this machine")
PROBE = """<script>addEventListener("load", () => {
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  const wide = document.documentElement.clientWidth, out = [];
  for (const card of document.querySelectorAll(".card, .tile, summary")) {
    const box = card.getBoundingClientRect();
    if (box.right > wide + 1 || box.left < -1) out.push(card.className);
    for (const part of card.querySelectorAll("svg, img, h3, p, b, .scroll, .tall")) {
      const inner = part.getBoundingClientRect();
      const beside = inner.right > box.right + 1 || inner.left < box.left - 1;
      if (inner.width && beside && !part.closest("table")) out.push(part.tagName);
    }
  }
  parent.document.title = document.documentElement.scrollWidth + " of " + wide + " out:" + out.join(" ");
});</script>"""


def shown_at(page: Path, width: int) -> browser.Shown:
    """Show a page in a frame of a width, with what the probe found as the title."""
    inner, outer = page.with_name(f"probe-{width}.html"), page.with_name(f"frame-{width}.html")
    inner.write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
    outer.write_text(
        f'<body style="margin:0"><iframe src="{inner.name}" style="width:{width}px;height:900px;border:0"></iframe>'
    )
    return browser.browse(outer, "--allow-file-access-from-files")


class Balanced(HTMLParser):
    """Checks that elements close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.seen.append(tag)
        if tag not in {"meta", "link", "img", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
