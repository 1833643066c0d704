"""The same seed on the same kind of device gives the same result: torch's deterministic algorithms, while we work."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch

SAID = ("does not have a deterministic implementation", "Deterministic behavior was enabled with either")
"""What torch says of operations that it has no deterministic algorithm for; the FAQ says it once for all."""


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Let a GPU add in the same order every time, where torch has an algorithm for it; a CPU does anyway.

    cuDNN may otherwise take another algorithm from one call to the next, and sums of many threads end in any order.
    Rounding is all that differs, but a search over masks makes much of a little.
    """
    if device.type != "cuda":
        yield
        return
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn, memory = torch.backends.cudnn, cast(Any, torch.utils.deterministic)  # a module with a property
    filled = memory.fill_uninitialized_memory
    before = cudnn.deterministic, cudnn.benchmark
    try:
        torch.use_deterministic_algorithms(True, warn_only=was[1] or not was[0])
        cudnn.deterministic, cudnn.benchmark = True, False
        memory.fill_uninitialized_memory = False  # it guards against reads of what was never written
        with warnings.catch_warnings():
            for words in SAID:
                warnings.filterwarnings("ignore", message=f".*{words}")
            yield
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])
        cudnn.deterministic, cudnn.benchmark = before
        memory.fill_uninitialized_memory = filled
