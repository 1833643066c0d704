"""Gradual pruning while training: every gradient moves the weights.

The curvature that training keeps anyway, the running mean of the squared gradients, says which of them go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.distillation import Lesson
from brainsurgeon.network.weights import Layer
from brainsurgeon.pruning.gradual.loop import Plan
from brainsurgeon.pruning.gradual.run import GradualRun
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.outcome import Outcome, Task
from brainsurgeon.pruning.patterns import as_pattern, is_free, pattern_shares
from brainsurgeon.pruning.ranks import one_time
from brainsurgeon.samples.batches import Batch

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

Augment = Callable[[Batch, torch.Generator], Batch]
FOLLOWED, WARMTH = 0.5, 2.0
"""The share of the distance from the dense outputs in what is minimised, and its temperature: with many samples."""
FEATURES = 10.0
"""The weight of the distance from the dense network's normalised features, where few samples are held out."""


@dataclass(frozen=True)
class Gradual:
    """Train the kept weights, and prune a little more every few steps; see `Plan` for how.

    Args:
        name: what the method is called in reports.
        plan: how the sparsity rises and the rate falls.
        first_cut: makes the whole cut before the training begins, with the update of its solver; training then repairs.
        learning_rate: of AdamW; None: the best of a few, found in short runs judged on held-out samples.
        batch_size: samples a step; None: 64, or 8 sequences of tokens.
        distil: the share of the distance from the dense outputs in what is minimised; None: all of it where few samples
            are held out, else half as long as the dense network does better than the pruned one, and none after that.
        temperature: of that distance; None: 4 where few samples are held out, else 2.
        features: the weight of the distance from what the dense network's layers give; None: 10 where few samples are
            held out and the network has normalisation layers, else 0.
        mix: train on mixed samples (mixup); None: where few samples are held out and the inputs are real numbers.
        augment: changes a training batch, drawing from the generator it is given.
        repair: "weights" trains the prunable weights, "all" biases and normalisation too.
        max_gradients: sample gradients in all.
        max_seconds: the same schedule in less time.
        max_samples: training samples in all, those held out among them.
        pattern: "unstructured", "row", n:m such as "2:4", or blocks such as "4x4", kept to in every cut.
    """

    name: str = "gradual"
    plan: Plan = field(default_factory=Plan, kw_only=True)
    first_cut: Layerwise | None = field(default=None, kw_only=True)
    learning_rate: float | None = field(default=None, kw_only=True)
    batch_size: int | None = field(default=None, kw_only=True)
    distil: float | None = field(default=None, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    features: float | None = field(default=None, kw_only=True)
    mix: bool | None = field(default=None, kw_only=True)
    augment: Augment | None = field(default=None, kw_only=True)
    repair: str = field(default="all", kw_only=True)
    max_gradients: int = field(default=240_000, kw_only=True)
    max_seconds: float | None = field(default=None, kw_only=True)
    max_samples: int | None = field(default=None, kw_only=True)
    pattern: Pattern = field(default_factory=Pattern, kw_only=True)

    uses_curvature = True
    uses_data = True
    shares_work = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", as_pattern(self.pattern))
        if self.first_cut is not None and self.first_cut.pattern != self.pattern:
            chosen = self.first_cut.pattern if is_free(self.pattern) else self.pattern
            object.__setattr__(self, "pattern", chosen)
            object.__setattr__(self, "first_cut", replace(self.first_cut, pattern=chosen))
        if self.repair not in ("weights", "all"):
            raise BrainsurgeonError(f'repair must be "weights" or "all", got {self.repair!r}')
        if isinstance(self.max_gradients, bool) or not isinstance(self.max_gradients, int) or self.max_gradients < 1:
            raise BrainsurgeonError(f"max_gradients must be a whole number of at least 1, got {self.max_gradients!r}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise BrainsurgeonError(f"max_seconds must be positive, or None for no limit, got {self.max_seconds}")
        if self.distil is not None and not 0 <= self.distil <= 1:
            raise BrainsurgeonError(f"distil is a share from 0 to 1, got {self.distil}")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise BrainsurgeonError(
                f"learning_rate must be positive, or None to have it found, got {self.learning_rate}"
            )

    def shares(self, shares: list[Share], sparsity: float, layers: Sequence[Layer]) -> list[Share]:
        """Return what is to go of which layers: what the budget says, in the counts that the pattern allows."""
        return pattern_shares(self.pattern, shares, sparsity, layers)

    def run(self, surgery: Surgery, task: Task) -> Outcome:
        """Find a learning rate, train with cuts in between, and tell what came out."""
        with one_time(task.clock):
            return GradualRun(self, surgery, task).run()

    def lesson(self, few: bool, normalised: bool) -> Lesson:
        """Return what the steps minimise, with few samples held out or many, and with normalised features or none."""
        share = self.distil if self.distil is not None else 1.0 if few else FOLLOWED
        temperature = self.temperature if self.temperature is not None else 4.0 if few else WARMTH
        features = self.features if self.features is not None else 0.0
        if self.features is None and normalised and few and share:
            features = FEATURES
        return Lesson(share, temperature, features, while_better=not few and self.distil is None)
