"""The best that data and time allow: candidates from cheap to dear, judged on samples that none of them has seen.

*quick* tries one-shot methods: layer by layer on the moments of the inputs, magnitude and, for small networks, the
Fisher matrix with the joint update. *standard* and *thorough* train as well: gradual pruning where samples are many,
and where they are few the cut that a quick method makes, repaired by distillation from the dense network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import Layer
from brainsurgeon.pruning.auto.run import AutoRun
from brainsurgeon.pruning.outcome import Outcome, Task
from brainsurgeon.pruning.patterns import as_pattern, budget_in, pattern_shares
from brainsurgeon.pruning.ranks import one_time
from brainsurgeon.samples.batches import Batch

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

EFFORTS = {"quick": 0, "standard": 240_000, "thorough": 960_000}
"""Sample gradients that training may take."""


@dataclass(frozen=True)
class Auto:
    """Try what may be best, from cheap to dear, and keep what the held-out samples like best.

    Args:
        name: what the method is called in reports.
        effort: "quick" (tens of forward passes), "standard" (minutes; trains the kept weights), "thorough" (longer).
        max_gradients: sample gradients in all; by default the effort's.
        max_seconds: seconds in all, preparation and measuring among them. The smallest weights and, where there is time
            for their gradients, the Fisher matrix with the joint update are candidates then, whatever the effort.
        max_samples: training samples in all, those held out among them.
        repair: "weights" trains the prunable weights alone, "all" biases and normalisation too.
        augment: changes a training batch, drawing from the generator it is given.
        pattern: "unstructured", "row", n:m such as "2:4", or blocks such as "4x4", which every candidate keeps to.
    """

    name: str = "auto"
    effort: str = field(default="standard", kw_only=True)
    max_gradients: int | None = field(default=None, kw_only=True)
    max_seconds: float | None = field(default=None, kw_only=True)
    max_samples: int | None = field(default=None, kw_only=True)
    repair: str = field(default="all", kw_only=True)
    augment: Callable[[Batch, torch.Generator], Batch] | None = field(default=None, kw_only=True)
    pattern: Pattern = field(default_factory=Pattern, kw_only=True)

    uses_curvature = True
    uses_data = True
    shares_work = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", as_pattern(self.pattern))
        if self.effort not in EFFORTS:
            raise BrainsurgeonError(f"effort must be one of {', '.join(EFFORTS)}, got {self.effort!r}")
        if self.max_gradients is not None and (not isinstance(self.max_gradients, int) or self.max_gradients < 1):
            raise BrainsurgeonError(f"max_gradients must be a whole number of at least 1, got {self.max_gradients!r}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise BrainsurgeonError(f"max_seconds must be positive, or None for no limit, got {self.max_seconds}")
        if self.repair not in ("weights", "all"):
            raise BrainsurgeonError(f'repair must be "weights" or "all", got {self.repair!r}')

    @property
    def gradients(self) -> int:
        """Sample gradients that training may take."""
        return EFFORTS[self.effort] if self.max_gradients is None else self.max_gradients

    def shares(self, shares: list[Share], sparsity: float, layers: Sequence[Layer]) -> list[Share]:
        """Return what is to go of which layers: what the budget says, in the counts that the pattern allows."""
        return pattern_shares(self.pattern, shares, sparsity, layers)

    def run(self, surgery: Surgery, task: Task) -> Outcome:
        """Run the candidates on the training samples, and keep the one that the held-out samples like best."""
        if surgery.data is None:
            raise BrainsurgeonError("method 'auto' needs training samples: give data, or take `mp`, which needs none")
        budget_in(self.pattern, surgery, task.shares)  # what cannot have the pattern is refused before any work
        with one_time(task.clock):
            return AutoRun(self, surgery, task).run()
