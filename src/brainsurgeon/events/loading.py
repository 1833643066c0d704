"""Modules that take seconds to import: the first gradient of a process waits for them."""

from __future__ import annotations

import sys
from importlib import import_module
from threading import Thread

from brainsurgeon.events.clock import pulse

COMPILER = "torch._dynamo"
"""What torch imports the first time that it is asked for gradients of functions, or for an optimizer."""
LOOK = 0.05


def load(name: str = COMPILER) -> None:
    """Import a module beside the work, so that time does not pass in silence, nor beyond its limit."""
    if name in sys.modules:
        return
    thread = Thread(target=import_module, args=(name,))
    thread.start()
    while thread.is_alive():
        pulse()
        thread.join(LOOK)
