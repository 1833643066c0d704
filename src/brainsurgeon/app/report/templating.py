"""The templates beside this file: whatever is put into one is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> Markup:
    """Fill a template."""
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    loader = PackageLoader("brainsurgeon.app.report")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
