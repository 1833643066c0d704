"""Whose run this is: a foreign one runs no code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from foreign import model_file, run

from brainsurgeon.app import trust


def test_ones_own_run_is_read_and_a_foreign_one_is_not(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, marker = model_file(tmp_path)
    assert run("prune", f"{path}:build", "-m", "mp", "-s", "0.5", "-o", tmp_path / "run", "-q") == 0
    commands = [
        ("prune", "--resume", tmp_path / "run", "-q"),
        ("evaluate", tmp_path / "run", "--seconds", "0"),
        ("export", tmp_path / "run", "masks", tmp_path / "masks"),
        ("finetune", tmp_path / "run", "-o", tmp_path / "tuned", "--epochs", "1", "-q"),
    ]
    for command in commands:
        assert run(*command) == 0, capsys.readouterr().err
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    shutil.rmtree(tmp_path / "run" / "result")
    for name in ("masks", "tuned"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    marker.unlink()
    capsys.readouterr()
    for command in commands:
        assert run(*command) == 1
        assert "give --trust" in " ".join(capsys.readouterr().err.split())
        assert not marker.exists()
    assert run("prune", "--resume", tmp_path / "run", "-q", "--trust") == 0
    assert marker.exists()
    assert run("evaluate", tmp_path / "run", "--seconds", "0", "--trust") == 0
    assert run("evaluate", tmp_path / "run", "--seconds", "0", "-t", f"{path}:build") == 0
    marker.unlink()
    assert run("report", tmp_path / "run") == 0
    assert not marker.exists()


def test_a_recipe_that_was_changed_is_no_longer_ones_own(tmp_path: Path, state: Path) -> None:
    path, marker = model_file(tmp_path)
    assert run("prune", f"{path}:build", "-m", "mp", "-s", "0.5", "-o", tmp_path / "run", "-q") == 0
    recipe = tmp_path / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("build", "other"))
    marker.unlink()
    assert run("evaluate", tmp_path / "run") == 1
    assert not marker.exists()


def test_a_recipe_that_was_changed_after_it_was_signed_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "recipe.yaml").write_text("target: demo\n")
    trust.sign(tmp_path)
    assert trust.is_ours(tmp_path)
    (tmp_path / "recipe.yaml").write_text("target: other.py:build\n")
    assert not trust.is_ours(tmp_path)


def test_a_key_is_made_once_and_is_the_users_alone(tmp_path: Path, state: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("target: mine.py:build\n")
    assert not trust.is_ours(tmp_path)
    assert not state.exists()  # asking makes none
    trust.sign(tmp_path)
    key = state / "brainsurgeon" / "key"
    first = key.read_bytes()
    assert len(first) == trust.KEY_BYTES
    assert key.stat().st_mode & 0o077 == 0
    trust.sign(tmp_path)
    assert key.read_bytes() == first
    assert [path.name for path in key.parent.iterdir()] == ["key"]


@pytest.mark.parametrize("content", [b"", b"another's", "ü".encode(), b"\xff\xfe"])
def test_a_signature_that_is_none_is_not_believed(tmp_path: Path, state: Path, content: bytes) -> None:
    (tmp_path / "recipe.yaml").write_text("target: mine.py:build\n")
    trust.sign(tmp_path)
    (tmp_path / trust.SIGNATURE).write_bytes(content)
    assert not trust.is_ours(tmp_path)


def test_only_what_names_code_must_be_ones_own(tmp_path: Path, state: Path) -> None:
    for harmless in ("demo", "hf:folder"):
        trust.check_trusted(tmp_path, harmless, False)
    trust.check_trusted(tmp_path, "mine.py:build", True)
    with pytest.raises(trust.NotTrustedError, match=r"import code that it names \(mine\.py:build\).*or give --trust"):
        trust.check_trusted(tmp_path, "mine.py:build", False, "name the target, or ")


def test_without_a_place_for_a_key_nothing_is_signed_or_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    (tmp_path / "recipe.yaml").write_text("target: mine.py:build\n")
    trust.sign(tmp_path)
    assert not (tmp_path / trust.SIGNATURE).exists()
    assert not trust.is_ours(tmp_path)


def test_the_key_lies_in_the_state_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "recipe.yaml").write_text("target: mine.py:build\n")
    trust.sign(tmp_path)
    assert (tmp_path / ".local" / "state" / "brainsurgeon" / "key").is_file()
