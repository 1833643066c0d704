"""Files appear whole or not at all, and JSON has a word for every number in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.files.writing import plain, safe_names, write_whole


@pytest.mark.parametrize("content", ["naïve words", b"\0bytes\xff"], ids=["text", "bytes"])
def test_what_is_written_is_there_and_nothing_else(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "file"
    path.write_text("older")
    write_whole(path, content)
    assert (path.read_text() if isinstance(content, str) else path.read_bytes()) == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fails", ["write_text", "replace"])
def test_where_writing_fails_the_older_file_stays_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The disk is full after some of the text, or just before the file gets its name."""
    path = tmp_path / "file"
    path.write_text("older")

    def full(temporary: Path, *_: object) -> None:
        temporary.write_bytes(b"hal")
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Path, fails, full)
        with pytest.raises(OSError, match="no space"):
            write_whole(path, "half of it")
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_numbers_without_a_word_in_json_become_null() -> None:
    record = {"losses": (1.5, float("inf"), [float("nan")]), "name": "mp", "count": 3, "none": None}
    assert json.loads(json.dumps(plain(record), allow_nan=False)) == {
        "losses": [1.5, None, [None]],
        "name": "mp",
        "count": 3,
        "none": None,
    }


@given(st.lists(st.text(max_size=150)))
def test_names_are_safe_and_their_own(names: list[str]) -> None:
    found = safe_names(names)
    assert len({name.lower() for name in found}) == len(names)
    for name in found:
        assert re.fullmatch(r"[A-Za-z0-9+_-][A-Za-z0-9+._-]*", name)
        assert len(name) < 120


def test_common_names_stay_readable() -> None:
    assert safe_names(["run time", "cbs-0.9-layers", "A", "a", "..", "../x/y", ""]) == [
        "run-time", "cbs-0.9-layers", "A", "a-2", "unnamed", "_x_y", "unnamed-2",
    ]  # fmt: skip
