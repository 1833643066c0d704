"""What all tests share: hypothesis draws the same examples on every run, without a time limit for each."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# The networks here are small: threads gain nothing, and on a busy machine they wait for one another for minutes.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with no rounding of a GPU's own: its convolutions take float32 as TF32 unless told not to."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own key, and a place to stand in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"
