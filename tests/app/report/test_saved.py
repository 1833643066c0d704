"""What is on disk is checked before it is shown: whatever is altered there ends in a report or in one clear error."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brainsurgeon import BrainsurgeonError
from brainsurgeon.app.report import read_record
from brainsurgeon.app.report.page import page
from brainsurgeon.app.report.saved import Facts, Measured, Result, read
from brainsurgeon.app.report.write import write_report

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 10**30, 10**400, 0.5, -0.0, 1e308, -1e308, 1e-320, float("nan"), float("inf"),
    "", "x", "[/b]", "../../x", "\x00\x1b[31m", "<script>", "=1+1", [], [[]], {}, {"a": 1}, [1, 2], ["a"], [None],
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in _places(part, (*path, key)))]


def _altered(value: Any, chance: random.Random) -> Any:
    """Replace, remove or repeat one part of a JSON value."""
    value = copy.deepcopy(value)
    path = chance.choice(_places(value))
    if not path:
        return chance.choice(ODD)
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    way = chance.random()
    if way < 0.2:
        del inside[path[-1]]
    elif way < 0.3 and isinstance(inside, dict):
        inside[str(chance.choice(ODD))] = inside[path[-1]]
    else:
        inside[path[-1]] = copy.deepcopy(chance.choice(ODD))
    return value


@pytest.mark.parametrize("name", ["result/result.json", "result/measured.json", "run.json"])
def test_altered_files_end_in_a_page_or_in_one_clear_error(
    make_run: Callable[..., Path], cost: dict[str, Any], tmp_path: Path, name: str
) -> None:
    """Three hundred random alterations of each file; a part of them is harmless, most are refused."""
    folder = make_run(tmp_path / "run", ["0.weight", "2.weight"], ["cbs"], [0.9], cost=cost)
    path = folder / name
    whole, chance, refused = json.loads(path.read_text()), random.Random(0), []
    for _ in range(300):
        altered = _altered(whole, chance)
        path.write_text(json.dumps(altered))
        try:
            shown = page(read_record([folder]))
        except BrainsurgeonError as error:
            refused.append(str(error))
        else:
            assert not re.search(r"[ \"](nan|-?inf)[,\"]|,(nan|-?inf)[ \"]", shown), altered
    assert 50 < len(refused) < 300
    for told in refused:
        assert path.name in told
        assert "\n" not in told


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000, b'{"method": "\\ud800"}', b"null"])
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(BrainsurgeonError, match=r"result\.json is damaged or was altered"):
        read(Result, path)


def test_damaged_masks_are_refused_in_words(make_run: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="masks are drawn by matplotlib")
    folder = make_run(tmp_path / "run", ["0.weight"], ["cbs"], [0.9])
    masks = folder / "result" / "masks.safetensors"
    content = masks.read_bytes()
    for damaged in (content[:40], b"", b"\xff" * 100, content.replace(b"[8,25]", b"[25,8]")):
        masks.write_bytes(damaged)
        with pytest.raises(BrainsurgeonError, match=r"masks\.safetensors"):
            write_report([folder], tmp_path / "out")


def test_counts_that_do_not_add_up_are_refused(make_cell: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    record = make_cell(tmp_path / "cell", ["a", "b"], "mp", 0.5)
    path = tmp_path / "cell" / "result.json"
    path.write_text(json.dumps({**record, "pruned": record["pruned"] + 1}))
    with pytest.raises(BrainsurgeonError, match=r"the layers count 199 of 400 weights, the record 200 of 400"):
        read(Result, path)
    record["layers"][0]["pruned"] = 201
    path.write_text(json.dumps(record))
    with pytest.raises(BrainsurgeonError, match=r"layers\.0.*201 of 200 weights cannot be pruned"):
        read(Result, path)


def test_numbers_that_are_not_finite_and_signs_that_do_not_print(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text('{"scores": {"a\\u001b[31m\\nb": NaN, "c": Infinity, "d": 1}}')
    assert read(Measured, path).scores == {"a\ufffd[31m\ufffdb": None, "c": None, "d": 1.0}
    path.write_text("{}")
    assert read(Facts, path) == Facts()
