"""Prune neural networks so that the removals cancel one another: the Combinatorial Brain Surgeon.

>>> import brainsurgeon
>>> result = brainsurgeon.prune(model, (inputs, targets), sparsity=0.9)
>>> result.model, result.summary()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brainsurgeon._version import __version__
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event

if TYPE_CHECKING:
    from brainsurgeon.engine.problem import Problem
    from brainsurgeon.files import Saved, load, load_masks, save, save_masks
    from brainsurgeon.network.evaluate import evaluate
    from brainsurgeon.pruning.goal import Goal
    from brainsurgeon.pruning.methods import NAMES as METHOD_NAMES
    from brainsurgeon.pruning.one_shot import OneShot
    from brainsurgeon.pruning.prune import prune
    from brainsurgeon.pruning.result import PruningResult
    from brainsurgeon.pruning.sensitivities import Sensitivity
    from brainsurgeon.pruning.sensitivity import sensitivity
    from brainsurgeon.pruning.staged.method import Staged
    from brainsurgeon.pruning.staged.schedule import Stages
    from brainsurgeon.pruning.surgery import Surgery
    from brainsurgeon.pruning.sweep import Sweep, sweep
    from brainsurgeon.structured.result import ShrinkResult
    from brainsurgeon.structured.saved import load_shrunk
    from brainsurgeon.structured.shrink import shrink
    from brainsurgeon.training.finetune import FinetuneResult, finetune
    from brainsurgeon.training.freeze import FrozenZeros, freeze_zeros
    from brainsurgeon.training.pruner import Pruner

__all__ = [
    "METHOD_NAMES",
    "BrainsurgeonError",
    "Event",
    "FinetuneResult",
    "FrozenZeros",
    "Goal",
    "OneShot",
    "Problem",
    "Pruner",
    "PruningResult",
    "Saved",
    "Sensitivity",
    "ShrinkResult",
    "Staged",
    "Stages",
    "Surgery",
    "Sweep",
    "__version__",
    "evaluate",
    "finetune",
    "freeze_zeros",
    "load",
    "load_masks",
    "load_shrunk",
    "prune",
    "save",
    "save_masks",
    "sensitivity",
    "shrink",
    "sweep",
]

_HOMES = {
    "FinetuneResult": ("training.finetune", "FinetuneResult"),
    "FrozenZeros": ("training.freeze", "FrozenZeros"),
    "Goal": ("pruning.goal", "Goal"),
    "METHOD_NAMES": ("pruning.methods", "NAMES"),
    "Problem": ("engine.problem", "Problem"),
    "Pruner": ("training.pruner", "Pruner"),
    "PruningResult": ("pruning.result", "PruningResult"),
    "Saved": ("files", "Saved"),
    "ShrinkResult": ("structured.result", "ShrinkResult"),
    "OneShot": ("pruning.one_shot", "OneShot"),
    "Sensitivity": ("pruning.sensitivities", "Sensitivity"),
    "Staged": ("pruning.staged.method", "Staged"),
    "Stages": ("pruning.staged.schedule", "Stages"),
    "Surgery": ("pruning.surgery", "Surgery"),
    "Sweep": ("pruning.sweep", "Sweep"),
    "evaluate": ("network.evaluate", "evaluate"),
    "finetune": ("training.finetune", "finetune"),
    "freeze_zeros": ("training.freeze", "freeze_zeros"),
    "load": ("files", "load"),
    "load_masks": ("files", "load_masks"),
    "load_shrunk": ("structured.saved", "load_shrunk"),
    "prune": ("pruning.prune", "prune"),
    "save": ("files", "save"),
    "save_masks": ("files", "save_masks"),
    "shrink": ("structured.shrink", "shrink"),
    "sensitivity": ("pruning.sensitivity", "sensitivity"),
    "sweep": ("pruning.sweep", "sweep"),
}


def __getattr__(name: str) -> Any:
    """Look a public name up when it is first used: `brainsurgeon --help` need not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
