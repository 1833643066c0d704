"""Runs on disk: a folder each, finished step by step, so that a killed run goes on where it was."""

from .cells import Cell
from .execute import execute
from .folder import RunError, RunFolder

__all__ = ["Cell", "RunError", "RunFolder", "execute"]
