"""What the dense network has answered for each training sample so far, over all the views it was asked about."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

KEPT = 1 << 25
"""Numbers that may be kept: class scores of every sample. Where there are more, each step has its own views alone."""


def _as_it_is(rows: Tensor) -> Tensor:
    return rows


class Remembered:
    """The mean of the dense network's outputs over all views of a sample, step after step.

    A sample that is drawn again comes as another view, so its answer gets better in every epoch, for no more passes.
    Sums and counts stay where they are in memory: a step can be recorded. Where a batch is shared out, `whole` makes
    the rows of the whole batch of those of a part, so that every rank knows all answers.
    """

    def __init__(self, samples: int):
        self.samples = samples
        self.whole: Callable[[Tensor], Tensor] = _as_it_is
        self.known: Tensor | None = None  # a row for each sample: the sum of its outputs, and of how many

    def mean(self, numbers: Tensor, outputs: list[Tensor]) -> Tensor:
        """Take in the outputs for some views of the samples of these numbers; return the mean over all views so far."""
        total = torch.stack(outputs).float().sum(0)
        if self.samples * total.shape[1] > KEPT:
            return (total / len(outputs)).to(outputs[0].dtype)
        if self.known is None:
            self.known = total.new_zeros(self.samples, total.shape[1] + 1)
        rows = torch.cat([total, total.new_full((len(total), 1), len(outputs))], 1)
        self.known.index_add_(0, self.whole(numbers), self.whole(rows))
        found = self.known[numbers]
        return (found[:, :-1] / found[:, -1:]).to(outputs[0].dtype)

    def state(self) -> dict[str, Tensor]:
        """Return all that is known, by name."""
        return {} if self.known is None else {"remembered": self.known}

    def restore(self, known: Tensor | None, like: Tensor) -> None:
        """Know what `state` told, beside a tensor."""
        self.known = None if known is None else known.to(like.device, copy=True)
