"""Cells of the paper's tables, computed in a moment."""

from pathlib import Path

from brainsurgeon.paper.reproduce.cells import compute
from brainsurgeon.paper.reproduce.protocol import Protocol

METHODS = ("mp", "wf", "cbs-s-published", "cbs-published", "cbs-s", "cbs", "cbs@1")


def run(protocol: Protocol, folder: Path) -> None:
    """Compute the cells of one sparsity and one seed."""
    compute(protocol, folder, [], sparsities=(0.9,), seeds=[0])
