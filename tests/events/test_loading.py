"""A slow import runs beside the work: the clock is looked at meanwhile, and nothing is imported twice."""

import sys
import time
from pathlib import Path

import pytest

from brainsurgeon.events import loading
from brainsurgeon.events.clock import TimeUp


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that takes a while to import."""
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.3)\nREADY = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "slow_to_import", None)  # so that what is imported is taken out at the end
    del sys.modules["slow_to_import"]
    return "slow_to_import"


def test_the_clock_is_looked_at_until_the_module_is_there(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[float]()
    monkeypatch.setattr(loading, "pulse", lambda: looks.append(time.monotonic()))
    loading.load(slow)
    assert sys.modules[slow].READY
    assert len(looks) >= 2


def test_a_module_that_is_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "pulse", lambda: pytest.fail("nothing is to be waited for"))
    monkeypatch.setattr(loading, "Thread", lambda **_: pytest.fail("nothing is to be imported"))
    loading.load("sys")


def test_a_limit_of_time_ends_the_wait(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> None:
        raise TimeUp

    monkeypatch.setattr(loading, "pulse", late)
    with pytest.raises(TimeUp):
        loading.load(slow)
    assert not hasattr(sys.modules.get(slow), "READY")
    while not hasattr(sys.modules.get(slow), "READY"):  # the import goes on; it must not end in the next test
        time.sleep(0.02)
