"""Many prunings of random small networks in one process, each recounted independently of the package."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, which is run from its own folder."""
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    return importlib.import_module("soak")


@pytest.mark.filterwarnings("ignore")
def test_a_few_random_prunings_are_exact(script: Any) -> None:
    found = script.soak(60, warm=20, every=15)
    assert found["failures"] == []
    assert [reading["prunings"] for reading in found["readings"]] == [20, 35, 50, 60]


@pytest.mark.filterwarnings("ignore")
def test_a_pruning_that_breaks_is_told_with_its_settings(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("broken on purpose")

    monkeypatch.setattr("brainsurgeon.prune", broken)
    (told,) = script.failures_of(3, 1)
    assert told.startswith("3: ")
    assert told.endswith("ValueError: broken on purpose")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_thousands_of_random_prunings_are_exact_and_leave_nothing_behind(script: Any) -> None:
    assert_flat(script.soak(2000))


def test_the_recorded_soak_found_nothing() -> None:
    record = json.loads((ROOT / "experiments/results/benchmarks/soak.json").read_text())
    assert record["prunings"] >= 2000
    assert record["commit"]
    assert_flat(record)


def assert_flat(found: dict[str, Any]) -> None:
    """Memory grows by kernels and caches of shapes that are new, and hardly where all are known."""
    assert found["failures"] == []
    first, last, again = found["readings"][0], found["readings"][-1], found["repeated"]
    assert last["open_files"] <= first["open_files"]
    assert again[-1]["open_files"] <= first["open_files"]
    assert last["resident_mib"] - first["resident_mib"] < 64
    assert again[-1]["resident_mib"] - last["resident_mib"] < 4
