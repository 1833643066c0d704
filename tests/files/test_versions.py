"""The record says what a run was made with."""

import platform

import numpy
import pytest
import torch

import brainsurgeon
from brainsurgeon.files.versions import versions


def test_the_versions_are_those_of_the_packages_in_use() -> None:
    found = versions()
    assert found["brainsurgeon"] == brainsurgeon.__version__
    assert (found["torch"], found["numpy"]) == (torch.__version__, numpy.__version__)
    assert found["python"] == platform.python_version()
    assert found["system"].startswith(platform.system())


def test_the_device_is_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU by its own name, the CPU by its threads."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU number {device.index}")
    assert versions()["device"] == versions(torch.device("cpu"))["device"] == "7 CPU threads"
    assert versions("cuda:3")["device"] == "GPU number 3"
