"""Devices, and the memory that is free on them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from cases import CASES

from brainsurgeon import BrainsurgeonError, prune
from brainsurgeon.network import memory


def test_gradients_that_do_not_fit_are_refused_with_a_number_that_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 72 * 4 * 100)
    message = r"1000 gradients of 72 weights take .* give num_gradients=90 or fewer .* dtype=torch.bfloat16"
    case = CASES["linear"]
    inputs, targets = case.data()
    data = inputs.repeat(1 + 1000 // len(inputs), 1), targets.repeat(1 + 1000 // len(targets))
    call: dict[str, Any] = {"model": case.model(), "data": data, "sparsity": 0.5, "method": "wf"}
    with pytest.raises(BrainsurgeonError, match=message):
        prune(**call, num_gradients=1000, progress=False)
    prune(**call, num_gradients=90, progress=False)


def test_memory_that_cannot_be_known_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: None)
    memory.check_fits(10**9, 10**9, torch.float32, torch.device("cpu"))


def test_the_free_memory_of_this_machine_is_known() -> None:
    free = memory.available_bytes(torch.device("cpu"))
    assert free is not None
    assert free > 1 << 20


def test_a_containers_own_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("4000000\n")
    assert memory.available_bytes(torch.device("cpu")) == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert (memory.available_bytes(torch.device("cpu")) or 0) > 1_000_000


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "warp", "meta:x"])
def test_a_device_that_is_not_there_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(BrainsurgeonError, match=f"device '{name}' cannot be used here: "):
        memory.check_device(name)
    assert memory.check_device("cpu") == torch.device("cpu")
