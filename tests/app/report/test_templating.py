"""Whatever is put into a template is escaped, and nothing that it asks for may be missing."""

from __future__ import annotations

import pytest
from jinja2 import DictLoader, Environment, UndefinedError
from markupsafe import Markup

from brainsurgeon.app.report import templating


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """The environment of the package, with templates of the test's own."""
    environment = templating._environment().overlay(loader=DictLoader({"a.html": "<b>{{ name }}</b>"}))
    monkeypatch.setattr(templating, "_environment", lambda: environment)
    return environment


@pytest.mark.usefixtures("own")
def test_words_are_escaped_and_markup_is_not() -> None:
    assert templating.render("a.html", name="<script>") == "<b>&lt;script&gt;</b>"
    inner = templating.render("a.html", name="x & y")
    assert isinstance(inner, Markup)
    assert templating.render("a.html", name=inner) == "<b><b>x &amp; y</b></b>"


@pytest.mark.usefixtures("own")
def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="name"):
        templating.render("a.html")


def test_every_template_of_the_package_is_sound() -> None:
    environment = templating._environment()
    names = environment.list_templates()
    assert {"page.html", "drawing.svg"} <= set(names)
    for name in names:
        environment.get_template(name)
