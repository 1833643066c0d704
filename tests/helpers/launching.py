"""Processes as torchrun starts them, over gloo on the CPU."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


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
