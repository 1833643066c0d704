"""Whether a student still learns from the dense network, by the losses of both on the samples of the last steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

REMEMBERED, ASKED, AHEAD = 0.98, 50, 0.7
"""How much of the running means stays at each step, after how many steps it is asked who does better, and how low the
dense network's loss must be beside the student's: one that is hardly better holds the student back."""
AHEAD_DOUBTED = 0.9
"""How low it must be on samples of which those are drawn more often that the dense network doubts."""


def _as_it_is(numbers: Tensor) -> Tensor:
    return numbers


class Trust:
    """Whether the dense network still does better than the student, by running means of their losses.

    A device is asked only every `ASKED` steps; while the student is ahead the dense network is not run at all. Where a
    batch is shared out, `mean` makes the losses of the whole batch of those of a part.
    """

    def __init__(self, ahead: float = AHEAD) -> None:
        self.ahead = ahead
        self.mean: Callable[[Tensor], Tensor] = _as_it_is
        self.losses: Tensor | None = None  # the student's, the dense network's
        self.steps, self.listens = 0, True

    def weigh(self, student: Tensor, dense: Tensor | None) -> Tensor:
        """Take in the losses of a step; return 1 where the dense network is to be followed, else 0.

        The running means stay where they are in memory, and nothing is asked of the device: a step can be recorded.
        """
        own = student.detach().float()  # means in half precision would stick
        other = None if dense is None else dense.float()
        if self.losses is None:
            self.losses = self.mean(torch.stack([own, own if other is None else other]))
        else:
            self.losses.lerp_(self.mean(torch.stack([own, self.losses[1] if other is None else other])), 1 - REMEMBERED)
        return self._ahead().to(student.dtype)

    def count(self) -> None:
        """Count a step; every `ASKED` of them the device is asked who does better."""
        self.steps += 1
        if self.losses is not None and self.steps % ASKED == 0:
            self.listens = bool(self._ahead())

    def _ahead(self) -> Tensor:
        assert self.losses is not None
        return self.losses[1] < self.ahead * self.losses[0]

    def state(self) -> Tensor:
        """Return all that it is, as numbers."""
        losses = [] if self.losses is None else self.losses.tolist()
        return torch.tensor([self.steps, self.listens, *losses], dtype=torch.float64)

    def restore(self, state: Tensor, like: Tensor) -> None:
        """Become what `state` told, beside a tensor."""
        self.steps, self.listens = int(state[0]), bool(state[1])
        self.losses = state[2:].to(like.device, torch.float32) if len(state) > 2 else None
