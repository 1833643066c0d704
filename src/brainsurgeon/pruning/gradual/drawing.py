"""What the steps of gradual pruning are taken on: samples drawn again and again, mixed, and changed by an augment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.layout import as_it_lies, choose_layout
from brainsurgeon.network.match import Match
from brainsurgeon.samples.augment import Augment, has_pictures, warp
from brainsurgeon.samples.batches import Batch, regroup
from brainsurgeon.samples.draws import generator_of
from brainsurgeon.samples.held_out import TrainingSamples
from brainsurgeon.samples.mixup import mixup
from brainsurgeon.samples.views import draw_views

if TYPE_CHECKING:
    from brainsurgeon.pruning.gradual.run import GradualRun


@dataclass(frozen=True)
class Drawing:
    """How the batches of steps are made; each depends on the seed, the weights of the draws and its number alone.

    `leg` counts the runs before it on a path, which drew others. Without `targets` a batch is inputs alone. `layout`
    puts images as the model's convolutions are fastest.
    """

    samples: TrainingSamples
    size: int
    seed: int
    leg: int = 0
    mixes: bool = False
    targets: bool = True
    augment: Augment | None = None
    views: int = 1
    layout: Callable[[Batch], Batch] = as_it_lies

    @property
    def warps(self) -> bool:
        """Whether pictures are turned, zoomed and shifted because nothing else was asked for."""
        return self.augment is warp

    def batches(self, steps: int, start: int = 0, weights: Tensor | None = None) -> Iterator[Batch]:
        """Yield the batches of the steps from a number on."""
        drawn = self.samples.draw_again((steps + 1) * self.size, 1 + self.leg, weights)
        batches = regroup(drawn, self.size)
        if self.mixes:
            batches = mixup(batches, targets=self.targets, seed=1_000_003 * self.seed + 17 + self.leg)
        generator = generator_of(7919 * self.seed + 1 + self.leg)
        for number, batch in enumerate(batches):
            if self.augment is not None:
                batch = draw_views(batch, self.augment, generator, self.views)
            if number >= start:
                yield self.layout(batch)


def drawing_of(run: GradualRun) -> Drawing:
    """Return how a run draws: few samples are mixed, and pictures among them warped, unless the method says otherwise.

    The dense network alone can answer for samples that are mixed; tokens cannot be.
    """
    method, loss = run.method, run.surgery.loss
    able = not run.tokens and run.teacher.lesson.share == 1
    if method.mix and not able:
        raise BrainsurgeonError(
            "mix=True mixes samples, and the dense network alone answers for these: it needs distil=1, and inputs "
            "that are no tokens"
        )
    mixes = able and (run.few if method.mix is None else method.mix)
    warps = mixes and has_pictures(run.held_out[0]) if method.warp is None else method.warp
    targets = not isinstance(loss, Match) or loss.targets
    augment = method.augment or (warp if warps else None)
    layout = choose_layout(run.surgery.batch_loss, run.held_out[0], trains=True)
    return Drawing(run.samples, run.batch_size, run.task.seed, run.legs, mixes, targets, augment, run.views, layout)
