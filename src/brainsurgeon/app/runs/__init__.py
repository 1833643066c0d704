"""Runs on disk: a folder each, finished step by step, so that a killed run goes on where it was."""

from brainsurgeon.app.runs.cells import Cell
from brainsurgeon.app.runs.execute import execute
from brainsurgeon.app.runs.folder import RunError, RunFolder

__all__ = ["Cell", "RunError", "RunFolder", "execute"]
