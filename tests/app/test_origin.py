"""A fine-tuned folder knows what made its model, and names no foreign code."""

import json
from pathlib import Path

import pytest
from commands import Run

from brainsurgeon.app.origin import ORIGIN, keep_origin, read_origin
from brainsurgeon.app.trust import is_ours
from brainsurgeon.errors import BrainsurgeonError


def test_a_fine_tuned_folder_knows_its_model(run: Run, tmp_path: Path) -> None:
    """From a run, from a folder whose target was named, and from another fine-tuned one."""
    run("prune", "demo", "-s", "0.9", "-m", "mp", "-o", tmp_path / "run", "--quiet")
    short = ("--epochs", 1, "--quiet")
    run("finetune", tmp_path / "run", "-o", tmp_path / "one", *short)
    run("finetune", tmp_path / "one", "-o", tmp_path / "two", *short)
    assert "3,236 of them not zero" in run("evaluate", tmp_path / "two", "--seconds", 0.01)
    (tmp_path / "two" / "target.json").write_text("{}")
    assert "name the target with --target" in run("evaluate", tmp_path / "two", status=1)


def test_a_fine_tuned_folder_from_elsewhere_names_code_that_is_not_run(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "from brainsurgeon.paper.datasets.embedded import load_demo\n\n\ndef build():\n"
        "    model, data = load_demo()\n    return {'model': model, 'data': data.train()}\n"
    )
    run("prune", f"{source}:build", "-s", "0.9", "-m", "mp", "-o", tmp_path / "run", "--quiet")
    run("finetune", tmp_path / "run", "-o", tmp_path / "one", "--epochs", 1, "--quiet")
    run("evaluate", tmp_path / "one", "--seconds", 0.01)
    (tmp_path / "one" / ".signature").write_text("another's")
    told = run("evaluate", tmp_path / "one", "--seconds", 0.01, status=1)
    assert "was not made by you here" in told
    assert "target.json" in told
    run("evaluate", tmp_path / "one", "--seconds", 0.01, "--trust")


@pytest.mark.parametrize(
    "told",
    ["", "[]", "{}", '{"target": 3, "arguments": {}, "seed": 0}', '{"target": "a.py:b", "arguments": [], "seed": 0}'],
)
def test_a_damaged_origin_is_refused_with_the_way_out(tmp_path: Path, told: str) -> None:
    (tmp_path / ORIGIN).write_text(told)
    with pytest.raises(BrainsurgeonError, match=r"is damaged.*name the target with --target"):
        read_origin(tmp_path)


def test_the_target_that_was_named_is_kept_with_its_whole_path(tmp_path: Path, state: Path) -> None:
    source, place = tmp_path / "source", tmp_path / "place"
    source.mkdir()
    place.mkdir()
    keep_origin(place, source, "mine.py:build")
    assert read_origin(place) == (f"{tmp_path / 'mine.py'}:build", {}, 0, None)
    assert is_ours(place, ORIGIN)
    other = tmp_path / "other"
    other.mkdir()
    keep_origin(other, place, None)  # from a folder that is no run, but knows its model
    assert read_origin(other) == read_origin(place)
    (source / "recipe.yaml").write_text("target: demo\ncheckpoint: trained.pt\n")
    keep_origin(other, source, None)
    assert read_origin(other)[3] == str(source / "trained.pt")
    (place / ORIGIN).write_text(json.dumps({"target": "evil.py:build", "arguments": {}, "seed": 0}))
    assert not is_ours(place, ORIGIN)
