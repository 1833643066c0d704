"""L(P): the loss on a fixed sample with the weights of P at zero, the criterion of Algorithms 1 and 2.

The paper evaluates it on thousands of samples for every candidate, which dominates its run time. Here the sample
is cut into small batches, evaluations are cached batch by batch, and candidates race: all start on a few batches,
the worse half drops out, the others go on to twice as many.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.clock import Clock, pulse
from brainsurgeon.network.autograd import loss_gradients
from brainsurgeon.network.checks import check_samples
from brainsurgeon.network.layout import choose_layout
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import plain_attention
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.samples.batches import Batch, batch_size, cut, regroup

BATCH = 32
"""Samples a batch: the unit of the race, and the same on every device, so that results are too."""
GRADIENT_BATCHES = 5
"""A gradient of the sample loss is taken on at least this many batches."""
MODERATE = 16
"""Batches that a race of weight vectors (a line search, rivals) starts on at least, all candidates together."""
SEARCH_FLOPS = 2.7e11
"""The gradients of a search should cost at most this much."""
DECIDING = 8
"""Batches on which a race is decided, the first round's where those are more."""
ROUND_FLOPS = 32e9
"""A first round may cost this much: cheap networks are judged on the whole sample at once."""
REMEMBERED = 8
"""Weight vectors whose losses are kept in mind: what a search holds on to, a line search, a rival, the report."""


def batch_gradient(batch_loss: BatchLoss, weights: PrunableWeights, values: Tensor, batch: Batch) -> Tensor:
    """Return the gradient of the mean loss of a batch at these weights, an N-vector in float64."""
    with weights.lent_to(batch_loss.model, values):
        found = loss_gradients(batch_loss, weights.names, batch)
    return torch.cat([found[name].reshape(-1).double() for name in weights.names])


class SampleLoss:
    """The mean loss of the model on a fixed sample, as a function of the N prunable weights."""

    def __init__(
        self,
        batch_loss: BatchLoss,
        weights: PrunableWeights,
        values: Tensor,
        batches: Sequence[Batch],
        judging: float = 0.5,
    ):
        self._judging = judging
        self._loss = batch_loss
        self._weights = weights
        self._values = values
        given = list(regroup(batches, BATCH))
        if not given:
            raise BrainsurgeonError("the data is empty: there is no sample to evaluate the loss on")
        self.layout = choose_layout(batch_loss, given[0])
        self._batches = list(map(self.layout, given))
        self._share = torch.tensor([batch_size(batch) for batch in self._batches], dtype=torch.float64)
        self._sound: set[int] = set()  # batches that were looked at, sample by sample, after a candidate diverged
        self._flops: float | None = None
        self._recent: deque[tuple[Tensor, list[float]]] = deque(maxlen=REMEMBERED)
        self.evaluations = 0  # samples put through the network so far

    @property
    def batches(self) -> list[Batch]:
        """The batches of the sample."""
        return self._batches

    @property
    def num_batches(self) -> int:
        """The number of batches of the sample."""
        return len(self._batches)

    @property
    def num_judging(self) -> int:
        """The number of batches that masks and weights are compared on: the first half, if not said otherwise."""
        return math.ceil(self._judging * self.num_batches)

    def without(self, pruned: Tensor) -> Candidate:
        """Return the candidate with the weights of P at zero and the others as they were."""
        return Candidate(self, lambda: self.masked(pruned))

    def masked(self, pruned: Tensor) -> Tensor:
        """Return the trained weights with those of P at zero."""
        return self._values.masked_fill(pruned, 0.0)

    def at(self, values: Tensor) -> Candidate:
        """Return the candidate with these N weights."""
        return Candidate(self, lambda: values)

    def __call__(self, pruned: Tensor) -> float:
        """L(P) on the whole sample."""
        return self.without(pruned).loss()

    def batch_means(self, values: Tensor, start: int, stop: int) -> list[float]:
        """Return the mean losses of some batches at these weights."""
        with torch.no_grad(), self._weights.lent_to(self._loss.model, values):
            means = [self._mean(batch) for batch in self._batches[start:stop]]
        self.evaluations += int(self._share[start:stop].sum())
        found: list[float] = torch.stack(means).tolist() if means else []
        for number, value in enumerate(found, start):
            if not math.isfinite(value):
                self._check_batch(number)
        return found

    def _mean(self, batch: Batch) -> Tensor:
        pulse()
        return self._loss(batch).double()

    def _check_batch(self, number: int) -> None:
        """Refuse a batch whose loss is not finite even at the weights that the sample was taken at: a bad sample."""
        if number in self._sound:
            return
        batch, first = self._batches[number], int(self._share[:number].sum())
        with torch.no_grad(), self._weights.lent_to(self._loss.model, self._values):
            if not bool(torch.isfinite(self._loss(batch))):
                check_samples(self._loss, batch, first, "those that the loss is taken on")
        self._sound.add(number)

    def remember(self, values: Tensor, means: list[float]) -> list[float]:
        """Return all that is known of the batch means at these weights: no batch is evaluated twice."""
        for number, (known, found) in enumerate(self._recent):
            if torch.equal(known, values):
                del self._recent[number]
                means = max(means, found, key=len)
                break
        self._recent.append((values.clone(), means))
        return means

    def gradient(self, values: Tensor, chosen: Sequence[int]) -> Tensor:
        """Return the mean gradient over some batches at these weights, an N-vector in float64."""
        total = torch.zeros_like(values, dtype=torch.float64)
        for number in chosen:
            pulse()
            total += self._share[number] * batch_gradient(self._loss, self._weights, values, self._batches[number])
        return total / float(self._share[list(chosen)].sum())

    def mean(self, means: Sequence[float]) -> float:
        """Return the mean over samples from the means of the first batches; a diverged loss counts as infinite."""
        share = self._share[: len(means)]
        value = float(torch.tensor(means, dtype=torch.float64) @ share / share.sum())
        return value if math.isfinite(value) else math.inf

    def first_round(self, candidates: int) -> int:
        """Return how many batches a race of this many candidates starts on."""
        affordable = ROUND_FLOPS / (self.flops_per_batch() * candidates)
        return max(1, min(self.num_judging, int(affordable)))

    def flops_per_batch(self) -> float:
        """Return the floating-point operations of a forward pass over one batch."""
        if self._flops is None:
            self._flops = max(self._counted(cut(self._batches[0], slice(1))), self._weights.size) * BATCH
        return self._flops

    def _counted(self, one: Batch) -> float:
        """Count what a single sample takes; nothing where it cannot be had alone, or the loss takes gradients."""
        try:
            with torch.no_grad(), plain_attention(), FlopCounterMode(display=False) as counter:
                self._loss(one)
        except Exception:  # the count says only how many batches a race begins with
            return 0.0
        return float(counter.get_total_flops())


class Candidate:
    """Weights whose loss is evaluated on as much of the sample as is asked for, and no batch twice."""

    def __init__(self, sample: SampleLoss, values: Callable[[], Tensor]):
        self._sample = sample
        self._values = values  # made when needed: many candidates wait, few run
        self._means: list[float] = []

    def means(self, batches: int) -> list[float]:
        """Return the mean losses of the first batches."""
        if len(self._means) < batches:
            values = self._values()
            self._means = self._sample.remember(values, self._means)
            self._means += self._sample.batch_means(values, len(self._means), batches)
        return self._means[:batches]

    def known(self) -> float | None:
        """Return the mean loss on what has been looked at so far."""
        return self._sample.mean(self._means) if self._means else None

    def loss(self, batches: int | None = None) -> float:
        """Return the mean loss on the first batches, by default on all."""
        return self._sample.mean(self.means(batches or self._sample.num_batches))


def race(sample: SampleLoss, candidates: Sequence[Candidate], winners: int = 1, least: int = 1) -> list[int]:
    """Return the numbers of the best candidates, best first, by successive halving on growing parts of the sample.

    The first round is on `least` batches, or on more where they are cheap.
    """
    alive = list(range(len(candidates)))
    batches = max(sample.first_round(len(alive)), min(least, sample.num_judging))
    while len(alive) > 1:
        alive.sort(key=lambda k: (candidates[k].loss(batches), k))
        if batches >= min(DECIDING, sample.num_judging) or len(alive) <= winners:
            return alive[:winners]
        alive = alive[: max(winners, (len(alive) + 1) // 2)]
        batches = min(2 * batches, sample.num_judging)
    return alive


def better(sample: SampleLoss, new: Candidate, old: Candidate, confidence: float = 2.0) -> bool:
    """Say whether L(new) < L(old), on no more of the sample than it takes to tell.

    A paired test on batch means: the sample doubles until the mean difference exceeds `confidence` standard errors, or
    the whole of it decides.
    """
    batches = sample.first_round(2)
    while batches < sample.num_judging:
        pairs = zip(new.means(batches), old.means(batches), strict=True)
        difference = torch.tensor([a - b for a, b in pairs], dtype=torch.float64)
        if not bool(torch.isfinite(difference).all()):
            break
        if batches > 3 and difference.mean().abs() > confidence * difference.std() / math.sqrt(batches):
            return bool(difference.mean() < 0)
        batches = min(2 * batches, sample.num_judging)
    return new.loss(batches) < old.loss(batches)


class LossJudge:
    """The sample loss as searches see it: masks and weights in, comparisons out."""

    def __init__(self, sample: SampleLoss, clock: Clock):
        self._sample, self._clock = sample, clock
        self._turn = 0
        self._best: Candidate | None = None  # the mask that a search holds on to

    def annotated(self, event: Event) -> Event:
        """Add to a search's event the sample loss of the mask it holds on to, as far as it was looked at."""
        known = self._best.known() if self._best is not None else None
        return event if event.stage != "search" or known is None else event.with_values(loss=known)

    def best_masks(self, masks: Sequence[Tensor], count: int = 1) -> list[int]:
        """Return the numbers of the masks P with the smallest L(P), best first."""
        with self._clock.measure("loss"):
            candidates = [self._sample.without(mask) for mask in masks]
            best = race(self._sample, candidates, count)
            self._best = candidates[best[0]]
            return best

    def is_better(self, new: Tensor, old: Tensor) -> bool:
        """Say whether L(new) < L(old) for two masks."""
        with self._clock.measure("loss"):
            candidate, before = self._sample.without(new), self._sample.without(old)
            improved = better(self._sample, candidate, before)
            self._best = candidate if improved else before
            return improved

    def gradient(self, pruned: Tensor) -> Tensor:
        """Return the mean gradient of the loss at the masked weights, on the next part of the other half of the sample.

        The half that masks are compared on takes no part, so that the search cannot fit itself to its judge.
        """
        half = range(self._sample.num_judging % self._sample.num_batches, self._sample.num_batches)
        count = min(len(half), self._gradient_batches())
        chosen = [half[(self._turn + k) % len(half)] for k in range(count)]
        self._turn += count
        with self._clock.measure("gradient"):
            return self._sample.gradient(self._sample.masked(pruned), chosen)

    def affordable_gradients(self, most: int) -> int:
        """Return how many gradients fit into what a search may cost, perhaps none."""
        flops = 3 * self._gradient_batches() * self._sample.flops_per_batch()
        return min(most, int(SEARCH_FLOPS / flops))

    def _gradient_batches(self) -> int:
        return max(GRADIENT_BATCHES, self._sample.first_round(3))

    def best_weights(self, candidates: Sequence[Tensor]) -> int:
        """Return the number of the weight vector with the smallest loss."""
        with self._clock.measure("loss"):
            least = MODERATE // len(candidates)
            return race(self._sample, [self._sample.at(values) for values in candidates], least=least)[0]


class WholeJudge(LossJudge):
    """The judge of the paper: L(P) of every candidate on the whole of the sample, with no race and no test.

    The gradient is still that of the second half of the sample, which is now judged on too.
    """

    def best_masks(self, masks: Sequence[Tensor], count: int = 1) -> list[int]:
        """Return the numbers of the masks P with the smallest L(P), best first; of equals the first."""
        with self._clock.measure("loss"):
            candidates = [self._sample.without(mask) for mask in masks]
            best = _by_loss(candidates)[:count]
            self._best = candidates[best[0]]
            return best

    def is_better(self, new: Tensor, old: Tensor) -> bool:
        """Say whether L(new) < L(old) for two masks."""
        with self._clock.measure("loss"):
            candidate, before = self._sample.without(new), self._sample.without(old)
            improved = candidate.loss() < before.loss()
            self._best = candidate if improved else before
            return improved

    def best_weights(self, candidates: Sequence[Tensor]) -> int:
        """Return the number of the weight vector with the smallest loss."""
        with self._clock.measure("loss"):
            return _by_loss([self._sample.at(values) for values in candidates])[0]


def _by_loss(candidates: Sequence[Candidate]) -> list[int]:
    return sorted(range(len(candidates)), key=lambda k: (candidates[k].loss(), k))
