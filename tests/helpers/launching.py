"""Processes as torchrun starts them, over gloo on the CPU."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from brainsurgeon import distributed


def environment(ranks: int) -> dict[str, str]:
    """What torchrun tells its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    return group | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def launch(program: Path, folder: Path, ranks: int = 2) -> list[int]:
    """Start a process for each rank as torchrun does, and return their exit codes."""
    common = os.environ | environment(ranks)
    command = [sys.executable, str(program), str(folder)]
    started = [subprocess.Popen(command, env=common | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(ranks)]
    try:
        return [process.wait(timeout=90) for process in started]
    finally:
        for process in started:
            process.kill()


@contextmanager
def alone() -> Iterator[None]:
    """A group of this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.stop()


def check_both(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """What two ranks left is the same bit for bit, and only the first has told anything."""
    told, untold = first.pop("told"), second.pop("told")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert told[0] > 0
    assert untold.tolist() == [0, 0]


def check_close(found: dict[str, Tensor], expected: dict[str, Tensor], by_layer: bool = True) -> None:
    """Exact counts, the same masks but for ties, and losses within rounding.

    Not `by_layer`, where the layers share a budget and a tie may be between weights of two of them.
    """
    masks = [name for name in expected if name.startswith("mask/")]
    counts = [[int(side[name].sum()) for name in masks] for side in (found, expected)]
    assert counts[0] == counts[1] if by_layer else sum(counts[0]) == sum(counts[1])
    same = sum(int((found[name] == expected[name]).sum()) for name in masks)
    assert same >= 0.999 * sum(expected[name].numel() for name in masks)
    assert torch.allclose(found["losses"], expected["losses"], rtol=0, atol=1e-4)
