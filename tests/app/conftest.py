"""What the tests of the tool share."""

from pathlib import Path

import pytest
from commands import TARGETS, Run

from brainsurgeon import prune
from brainsurgeon.app.cli import main
from brainsurgeon.paper.datasets.embedded import load_demo


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own to stand in."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration network, pruned and saved; to be read only."""
    model, data = load_demo()
    result = prune(model, data.train(), 0.95, "mp", progress=False)
    return result.save(tmp_path_factory.mktemp("pruned") / "mp")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command; return what it printed, or where it fails its error."""

    def call(*arguments: object, status: int = 0) -> str:
        found = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert found == status, err
        return out if status == 0 else err

    return call


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with functions that make targets, good and bad."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own_model_of_test_target.py"
    path.write_text(TARGETS)
    return path
