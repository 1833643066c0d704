"""Folders and texts that are no language model and no text, told in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.language import load_language_model, read_tokens


def split(text: str, **_: Any) -> dict[str, list[int]]:
    return {"input_ids": [len(word) for word in text.split()]}


def test_a_folder_that_is_not_there_or_holds_no_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(BrainsurgeonError, match="there is no folder"):
        load_language_model(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BrainsurgeonError, match="cannot be loaded as a causal language model"):
        load_language_model(tmp_path / "empty")
    with pytest.raises(BrainsurgeonError, match="must hold its weights as safetensors"):
        load_language_model(tmp_path / "empty", on_disk=tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_text_is_cut_into_whole_windows_and_a_short_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a bb ccc dddd e ff ggg")
    assert read_tokens(split, path, 3).tolist() == [[1, 2, 3], [4, 1, 2]]
    with pytest.raises(BrainsurgeonError, match=r"7 tokens, which is 1 window\(s\) of 4: give a longer text"):
        read_tokens(split, path, 4)
    with pytest.raises(BrainsurgeonError, match="at least two tokens"):
        read_tokens(split, path, 1)
    with pytest.raises(BrainsurgeonError, match="cannot be read as text"):
        read_tokens(split, tmp_path / "missing.txt")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BrainsurgeonError, match="cannot be read as text"):
        read_tokens(split, path)
