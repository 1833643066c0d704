"""Prune neural networks so that the removals cancel one another: the Combinatorial Brain Surgeon.

>>> import brainsurgeon
>>> result = brainsurgeon.prune(model, (inputs, targets), sparsity=0.9)
>>> result.model, result.summary()
"""

from ._version import __version__
from .errors import BrainsurgeonError
from .events import Event
from .methods import NAMES as METHOD_NAMES
from .methods import Method
from .problem import Problem
from .prune import Surgery, prune
from .result import PruningResult

__all__ = [
    "METHOD_NAMES",
    "BrainsurgeonError",
    "Event",
    "Method",
    "Problem",
    "PruningResult",
    "Surgery",
    "__version__",
    "prune",
]
