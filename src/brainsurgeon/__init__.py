"""Prune neural networks so that the removals cancel one another: the Combinatorial Brain Surgeon.

>>> import brainsurgeon
>>> result = brainsurgeon.prune(model, (inputs, targets), sparsity=0.9)
>>> result.model, result.summary()
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import BrainsurgeonError
from .events import Event

if TYPE_CHECKING:
    from .files import Saved, load, load_masks, save, save_masks
    from .finetune import FinetuneResult, finetune
    from .freeze import FrozenZeros, freeze_zeros
    from .methods import NAMES as METHOD_NAMES
    from .methods import Method
    from .problem import Problem
    from .prune import prune
    from .result import PruningResult
    from .settings import Settings
    from .surgery import Surgery

__all__ = [
    "METHOD_NAMES",
    "BrainsurgeonError",
    "Event",
    "FinetuneResult",
    "FrozenZeros",
    "Method",
    "Problem",
    "PruningResult",
    "Saved",
    "Settings",
    "Surgery",
    "__version__",
    "finetune",
    "freeze_zeros",
    "load",
    "load_masks",
    "prune",
    "save",
    "save_masks",
]

_HOMES = {
    "FinetuneResult": ("finetune", "FinetuneResult"),
    "FrozenZeros": ("freeze", "FrozenZeros"),
    "METHOD_NAMES": ("methods", "NAMES"),
    "Method": ("methods", "Method"),
    "Problem": ("problem", "Problem"),
    "PruningResult": ("result", "PruningResult"),
    "Saved": ("files", "Saved"),
    "Settings": ("settings", "Settings"),
    "Surgery": ("surgery", "Surgery"),
    "finetune": ("finetune", "finetune"),
    "freeze_zeros": ("freeze", "freeze_zeros"),
    "load": ("files", "load"),
    "load_masks": ("files", "load_masks"),
    "prune": ("prune", "prune"),
    "save": ("files", "save"),
    "save_masks": ("files", "save_masks"),
}


class _Package(ModuleType):
    """The package, whose names are looked up when first used: `brainsurgeon --help` need not wait for PyTorch."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _HOMES[name]
        return getattr(import_module(f"{__name__}.{module}"), attribute)

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the module `prune` or `finetune` binds it here; the function of that name is what users mean.
        if not (_HOMES.get(name) == (name, name) and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
