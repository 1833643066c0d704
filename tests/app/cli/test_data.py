"""`brainsurgeon data fetch`."""

from pathlib import Path

import pytest
from dataset_files import install, random_arrays, write_mnist

from brainsurgeon.app.cli import main


def test_fetching_from_an_empty_folder_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["data", "fetch", "mnist", "--from", str(tmp_path), "--root", str(tmp_path / "cache")])
    assert status == 1
    assert "train-images" in capsys.readouterr().err


def test_what_was_fetched_is_told_with_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = random_arrays((28, 28), train=6, test=2)
    write_mnist(tmp_path / "copy", arrays, Path.write_bytes)
    with pytest.MonkeyPatch.context() as patch:
        install(patch, "mnist", arrays)
        command = ["data", "fetch", "mnist", "--from", str(tmp_path / "copy"), "--root", str(tmp_path / "cache")]
        assert main(command) == 0
    assert capsys.readouterr().out == f"mnist is in {tmp_path / 'cache' / 'mnist'}\n"
    assert len(list((tmp_path / "cache" / "mnist").glob("*.idx"))) == 4
