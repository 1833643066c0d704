"""The list of planted faults is true to the source: every one can be planted, and has tests to notice it."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, which is run from its own folder."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("planted_faults")


def test_every_fault_stands_once_in_its_file(planted: Any) -> None:
    known = planted.KNOWN
    wrong = [fault.name for fault in known if (planted.SOURCE / fault.file).read_text().count(fault.old) != 1]
    assert not wrong, "bring the list to the present source"
    assert all(fault.old != fault.new for fault in known)


def test_every_fault_has_a_name_of_its_own_and_tests_that_are_there(planted: Any) -> None:
    assert not [name for name, count in Counter(fault.name for fault in planted.KNOWN).items() if count > 1]
    for fault in planted.KNOWN:
        for place in fault.tests.split():
            path, _, name = place.partition("::")
            assert (planted.ROOT / path).exists(), fault.name
            assert not name or f"def {name}" in (planted.ROOT / path).read_text(), fault.name


def test_the_last_record_is_what_contributors_are_told_and_notices_enough(planted: Any) -> None:
    record = json.loads((planted.ROOT / "experiments/results/benchmarks/planted-faults.json").read_text())
    told = " ".join((planted.ROOT / "CONTRIBUTING.md").read_text().split())
    assert f"{record['noticed']} of {record['faults']} faults were noticed" in told
    assert record["noticed"] == record["faults"] - len(record["missed"])
    assert record["noticed"] >= 0.95 * record["faults"]
