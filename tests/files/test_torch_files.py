"""Torch files are read without running any code that is in them."""

from __future__ import annotations

import collections
import pickle
import time
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from brainsurgeon.files.checkpoint import read_state_dict
from brainsurgeon.files.torch_files import CheckpointError


class Attack:
    """Unpickled carelessly, this would call a function of the attacker's choice."""

    def __init__(self, function: object, *args: object) -> None:
        self.call = (function, args)

    def __reduce__(self) -> object:
        return self.call


def write_marker(path: str) -> None:
    Path(path).touch()


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("kind", ["function", "builtin", "system"])
def test_code_in_a_checkpoint_is_never_run(tmp_path: Path, model: nn.Module, kind: str, legacy: bool) -> None:
    import os

    marker = tmp_path / "ran"
    attack = {
        "function": Attack(write_marker, str(marker)),
        "builtin": Attack(exec, f"open({str(marker)!r}, 'w')"),
        "system": Attack(os.system, f"touch {marker}"),
    }[kind]
    path = tmp_path / "hostile.pt"
    torch.save({"state_dict": model.state_dict(), "epoch": attack}, path, _use_new_zipfile_serialization=not legacy)
    if kind == "system":
        with pytest.raises(CheckpointError, match="system commands"):
            read_state_dict(path)
    else:
        assert torch.equal(read_state_dict(path)["0.weight"], model.state_dict()["0.weight"])
    assert not marker.exists()


def test_a_bare_hostile_pickle_is_refused(tmp_path: Path) -> None:
    marker, path = tmp_path / "ran", tmp_path / "hostile.pth"
    for protocol in (2, 5):
        path.write_bytes(pickle.dumps(Attack(write_marker, str(marker)), protocol))
        with pytest.raises(CheckpointError, match="cannot be read safely"):
            read_state_dict(path)
    assert not marker.exists()


def test_other_objects_beside_the_weights_become_inert(tmp_path: Path, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {"module." + name: value for name, value in model.state_dict().items()}
    extra = {"optimizer": optimizer, "history": collections.defaultdict(list, {1: [2]})}
    path = tmp_path / "with_optimizer.ckpt"
    for zipped in (True, False):
        torch.save({"model_state_dict": state, **extra}, path, _use_new_zipfile_serialization=zipped)
        assert list(read_state_dict(path)) == list(model.state_dict())


def test_a_small_archive_that_expands_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", b"\x80\x02" + b"N0" * 40_000_000 + b"N.")
        archive.writestr("bomb/version", "3")
    started = time.perf_counter()
    with pytest.raises(CheckpointError, match="would expand"):
        read_state_dict(path)
    assert time.perf_counter() - started < 2
