"""The solvers of the extra `exact`, imported where they are needed."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from brainsurgeon.errors import BrainsurgeonError


def solver(module: str) -> ModuleType:
    """Import a solver, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise BrainsurgeonError(
            f"this formulation needs {module}, which is not installed ({error}): pip install 'brainsurgeon[exact]'; "
            'the formulations "branch-and-bound" and "branch-and-bound-s" need no solver'
        ) from error
