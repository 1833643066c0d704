"""Gradual pruning while training: every gradient moves the weights.

The curvature that training keeps anyway, the running mean of the squared gradients, says which of them go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

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
from brainsurgeon.samples.augment import Augment

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

FOLLOWED, WARMTH = 0.5, 2.0
"""The share of the distance from the dense outputs in what is minimised, and its temperature: with many samples."""
MORE_FOLLOWED = 0.9
"""That share where the dense network answers for several views; its temperature is that of few samples then."""
FEATURES = 10.0
"""The weight of the distance from the dense network's normalised features, where few samples are held out."""


@dataclass(frozen=True)
class Gradual:
    """Train the kept weights, and prune a little more every few steps; see `Plan` for how.

    Args:
        name: what the method is called in reports.
        plan: how the sparsity rises and the rate falls.
        first_cut: makes the whole cut before the training begins, with the update of its solver; training then repairs.
        learning_rate: of the plan's optimizer; None: the best of a few, found in short runs judged on held-out samples.
        batch_size: samples a step; None: 64, or 8 sequences of tokens.
        distil: the share of the distance from the dense outputs in what is minimised; None: all of it where few samples
            are held out, else half (0.9 with several views) as long as the dense network does better than the pruned
            one, and none after that.
        temperature: of that distance; None: 2 where many samples are held out and there is one view, else 4.
        views: views of each training sample, drawn by `augment`, that the dense network answers for: the mean of its
            outputs is followed. None: 2 where many samples are held out, the outputs are one row of class scores a
            sample, and `augment` leaves the targets alone; else 1.
        features: the weight of the distance from what the dense network's layers give; None: 10 where few samples are
            held out and the network has normalisation layers, else 0.
        mix: train on mixed samples (mixup); None: where few samples are held out and the inputs are real numbers.
        augment: changes a training batch, drawing from the generator it is given.
        warp: turn, zoom and shift training images a little, each time in another way, where there is no `augment`;
            None: where samples are mixed and the inputs are grey or coloured images.
        doubt: the share of the draws that go to training samples by how much the dense network doubts them (1 − max p);
            None: a quarter of them where many samples are held out, there are gradients for all of them, and the
            outputs are one row of class scores a sample; else 0.
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
    views: int | None = field(default=None, kw_only=True)
    mix: bool | None = field(default=None, kw_only=True)
    augment: Augment | None = field(default=None, kw_only=True)
    warp: bool | None = field(default=None, kw_only=True)
    doubt: float | None = field(default=None, kw_only=True)
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
        self.plan.that_cuts()
        if self.batch_size is not None and not (isinstance(self.batch_size, int) and self.batch_size >= 1):
            raise BrainsurgeonError(f"batch_size must be a whole number from 1 on, or None, got {self.batch_size!r}")
        if self.temperature is not None and not self.temperature > 0:
            raise BrainsurgeonError(f"temperature must be positive, or None, got {self.temperature}")
        if self.features is not None and not self.features >= 0:
            raise BrainsurgeonError(f"features is a weight of 0 or more, or None, got {self.features}")
        if self.views is not None and not (isinstance(self.views, int) and self.views >= 1):
            raise BrainsurgeonError(f"views must be a whole number of at least 1, or None, got {self.views!r}")
        if self.views is not None and self.views > 1 and self.augment is None:
            raise BrainsurgeonError(f"{self.views} views of a sample need `augment`, which draws them")
        if self.warp and self.augment is not None:
            raise BrainsurgeonError(
                "warp=True goes without `augment`: let yours warp the images too, or leave warp out"
            )
        if self.doubt is not None and not 0 <= self.doubt <= 1:
            raise BrainsurgeonError(f"doubt is a share from 0 to 1, got {self.doubt}")
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

    def lesson(self, few: bool, normalised: bool, views: int = 1) -> Lesson:
        """Return what the steps minimise: few samples held out or many, normalised features or none, views of them."""
        usual, warmth = (1.0, 4.0) if few else (MORE_FOLLOWED, 4.0) if views > 1 else (FOLLOWED, WARMTH)
        share = self.distil if self.distil is not None else usual
        temperature = self.temperature if self.temperature is not None else warmth
        features = self.features if self.features is not None else 0.0
        if self.features is None and normalised and few and share:
            features = FEATURES
        return Lesson(share, temperature, features, while_better=not few and self.distil is None)
