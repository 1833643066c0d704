"""`brainsurgeon prune` by two processes: one folder, written by the first, the same masks; a rank that dies is told."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import brainsurgeon
from brainsurgeon.app.cli.ranks import check_methods
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.datasets.embedded import load_demo

COMMAND = [sys.executable, "-m", "brainsurgeon", "prune"]
DYING = """
import os, torch
from torch import nn

def build():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    calls = []
    def count(*_):
        calls.append(1)
        if os.environ.get("RANK") == "1" and len(calls) == 12:
            os._exit(3)
    model[2].register_forward_hook(count)
    return model, (torch.randn(64, 8), torch.randint(4, (64,)))
"""


def launch(arguments: list[str], folder: Path) -> list[tuple[int, str]]:
    """Start a process for each rank as torchrun does; return their exit codes and what they told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [*COMMAND, *arguments],
            env=os.environ | group | {"RANK": str(r), "LOCAL_RANK": str(r), "CUDA_VISIBLE_DEVICES": ""},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for r in range(2)
    ]
    try:
        return [(p.wait(), told) for p, told in [(p, p.communicate(timeout=120)[0]) for p in started]]
    finally:
        for process in started:
            process.kill()


def test_two_processes_write_one_folder_with_the_result_of_one(tmp_path: Path) -> None:
    asked = ["demo", "-s", "0.5", "-m", "wanda", "--budget", "uniform"]
    (code, told), (other_code, other) = launch([*asked, "--output", "both"], tmp_path)
    assert (code, other_code) == (0, 0), told + other
    assert not other.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["both"]
    both = json.loads((tmp_path / "both/result/result.json").read_text())
    model, data = load_demo()
    alone = brainsurgeon.prune(model, data.train(), 0.5, "wanda", budget="uniform", progress=False)
    assert [layer["pruned"] for layer in both["layers"]] == [layer.pruned for layer in alone.layers]
    assert both["loss_after"] == pytest.approx(alone.loss_after, rel=1e-4)


@pytest.mark.slow  # processes that start, and wait for one another
def test_a_rank_that_dies_ends_the_other_in_words(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    (code, told), (other, _) = launch(["dying.py:build", "-s", "0.5", "-m", "layerwise", "--output", "run"], tmp_path)
    assert other == 3
    assert code == 1
    assert "another rank stopped" in told


def test_a_method_that_shares_nothing_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_methods(["mp"])  # one process
    monkeypatch.setattr("brainsurgeon.distributed.world_size", lambda: 2)
    check_methods(["layerwise", "wanda", "gradual", "auto"])
    with pytest.raises(BrainsurgeonError, match="'mp' does not share its work out among 2"):
        check_methods(["mp"])
