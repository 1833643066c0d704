"""Runs on disk: a folder each, finished step by step, so that a killed run goes on where it was."""

from .execute import Cell, execute
from .folder import RunError, RunFolder

__all__ = ["Cell", "RunError", "RunFolder", "execute"]
