"""`loss="match"`: the distance of a model's outputs from the dense model's, where there are no labels.

The outputs are all tensors of real numbers that the model gives, in tuples, dicts or dataclasses, with one entry for
each sample. Of each of the R of them, with M numbers (or places) a sample, the distance is the mean over samples of

| outputs | distance | Λ |
|---|---|---|
| logits of classes | KL divergence of softmax f from that of the dense f̄, the mean over places | diag(p) − ppᵀ |
| numbers | (f − f̄)²/v, the mean over numbers; v is the variance of the dense ones | 2/v |

and the loss is the mean of the R distances. At the dense weights it is zero, and so is its gradient; its Hessian there
is the Gauss–Newton matrix H = E[Σ_r JᵀΛJ/(MR)]. Rows Jᵀs with E[ssᵀ] = Λ/(MR) have it as their mean square: for
numbers s is a random sign of √(2/v)/√(MR), for logits (p − e_y)/√(MR) with y drawn from p.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import MATCH, BatchLoss, LossLike, OutputLoss, call, distance, variance_of
from brainsurgeon.network.modes import without_cache
from brainsurgeon.network.prediction import CLASSES, Prediction
from brainsurgeon.samples.batches import Batch, as_batches, batch_size, cut, first, moved, tensors_of

PROBED = 256
"""Samples on which the variance of the dense outputs is taken."""
LOGITS = "logits"
"""An output of this name is of classes."""


@dataclass(frozen=True)
class Output:
    """One tensor of the outputs: where it lies, the axis of its classes or None, and the variance of its numbers."""

    path: tuple[str, ...]
    axis: int | None
    variance: float = 1.0

    def distance(self, found: Tensor, wanted: Tensor, temperature: float = 1.0) -> Tensor:
        """Return the mean distance of some samples' outputs from the dense ones."""
        return distance(found, wanted, self.axis, temperature, self.variance)

    def direction(self, wanted: Tensor, generator: torch.Generator) -> Tensor:
        """Draw s for each sample, with E[ssᵀ] = Λ/M."""
        wide = wanted.to(torch.promote_types(wanted.dtype, torch.float32))
        if self.axis is None:
            signs = torch.randint(2, wide.shape, generator=generator).to(wide) * 2 - 1
            return signs * (2 / self.variance / wide[0].numel()) ** 0.5
        scores = wide.movedim(self.axis, 1)
        drawn = Prediction(CLASSES).draw(scores, generator)
        return drawn.movedim(1, self.axis) / (scores[0, 0].numel() or 1) ** 0.5


class Match:
    """The distance from a dense model's outputs, as a `loss(model, batch)`; batches hold inputs alone.

    A pair whose second part the model does not take is (inputs, targets), and its targets are left out.
    """

    def __init__(self, dense: nn.Module, outputs: Sequence[Output], targets: bool, name: str = MATCH):
        self.dense, self.compared, self.targets, self.name = dense, tuple(outputs), targets, name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean distance of a model's outputs for a batch from the dense ones."""
        return self.distance(self.outputs(model, batch), self.wanted(batch))

    def distance(self, found: Sequence[Tensor], wanted: Sequence[Tensor], temperature: float = 1.0) -> Tensor:
        """Return the mean of the distances of all outputs."""
        parts = zip(self.compared, found, wanted, strict=True)
        return torch.stack([part.distance(ours, theirs, temperature) for part, ours, theirs in parts]).mean()

    def outputs(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Return the tensors that are compared, of a model."""
        inputs = batch[0] if self.targets else batch
        with without_cache(model):
            given = dict(leaves(call(model, inputs)))
        missing = [part.path for part in self.compared if part.path not in given]
        if missing:
            raise BrainsurgeonError(f"the output {'.'.join(missing[0])!r} is missing for some batch: it must be in all")
        return tuple(given[part.path] for part in self.compared)

    @torch.no_grad()
    def wanted(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the dense model's outputs, on the device of the batch."""
        device = tensors_of(batch)[0].device
        if next(self.dense.parameters()).device != device:
            self.dense.to(device)
        return self.outputs(self.dense, batch)

    def output_loss(self) -> OutputLoss:
        """Return the two steps of this loss: outputs, and their distance."""
        return OutputLoss(self.outputs, lambda found, batch: self.distance(found, self.wanted(batch)), None, own=self)

    def drawn(self, batches: Iterable[Batch], generator: torch.Generator) -> Iterator[Batch]:
        """Yield (batch, directions s), an s for every sample: gradients of `pulled` there have H as mean square."""
        for batch in batches:
            share = len(self.compared) ** -0.5
            wanted = self.wanted(batch)
            drawn = [p.direction(o, generator).to(o.dtype) * share for p, o in zip(self.compared, wanted, strict=True)]
            yield batch, drawn

    def pulled(self, model: nn.Module, mean: bool = False) -> BatchLoss:
        """Return the loss Σ⟨s, f⟩ of drawn batches: divided by √B for a group of B samples, by B for their mean."""

        def pull(model: nn.Module, batch: Batch) -> Tensor:
            found, drawn = self.outputs(model, batch[0]), batch[1]
            total = torch.stack([(o * s).sum() for o, s in zip(found, drawn, strict=True)]).sum()
            return total / batch_size(drawn) ** (1.0 if mean else 0.5)

        return BatchLoss(model, pull)


def is_match(loss: Any) -> bool:
    """Say whether a loss is one of the names of the distance from the dense outputs."""
    return isinstance(loss, str) and loss.partition(":")[0] == MATCH


def bound_loss(loss: LossLike, data: Any, dense: Callable[[], nn.Module], device: torch.device) -> LossLike:
    """Return the loss with the dense model and its outputs' variance found out, where it is the distance from it."""
    if not is_match(loss) or data is None:
        return loss
    kind = str(loss).partition(":")[2] or "auto"
    if kind not in ("auto", "classes", "numbers"):
        raise BrainsurgeonError(f'unknown loss {loss!r}: give "match", "match:classes" or "match:numbers"')
    probed = first(as_batches(data, torch.Generator().manual_seed(0)), PROBED)
    some = [moved(batch, device) for batch in probed if batch_size(batch)]
    if not some:
        raise BrainsurgeonError("the data is empty: there is no sample to match the outputs on")
    model = dense()
    targets = _holds_targets(model, some[0])
    with torch.no_grad(), without_cache(model):
        parts = _compared(model, [batch[0] if targets else batch for batch in some], kind)
    return Match(model, parts, targets, str(loss))


def _compared(model: nn.Module, batches: list[Batch], kind: str) -> list[Output]:
    """Find the outputs with one entry a sample, by asking for two and for three, and the variance of each."""
    two, three = (dict(leaves(_asked(model, cut(batches[0], torch.zeros(n, dtype=torch.long))))) for n in (2, 3))
    paths = [path for path, leaf in three.items() if leaf.shape[0] == 3 and two[path].shape[0] == 2]
    if not paths:
        raise BrainsurgeonError(
            'loss="match" compares outputs, and this model gives no tensor of real numbers with an entry for each '
            "sample (in a tuple, a dict or a dataclass): give a loss(model, batch) of your own"
        )
    seen: dict[tuple[str, ...], list[Tensor]] = {path: [] for path in paths}
    for batch in batches:
        given = dict(leaves(_asked(model, batch)))
        for path, values in seen.items():
            values.append(given[path].detach().double().reshape(-1).cpu())
    regression = getattr(getattr(model, "config", None), "problem_type", None) == "regression"
    found = []
    for path, values in seen.items():
        axis = None if regression else _axis(path, three[path], kind)
        found.append(Output(path, axis, variance_of(torch.cat(values))))
    return found


def _asked(model: nn.Module, inputs: Batch) -> Any:
    try:
        return call(model, inputs)
    except Exception as error:  # a user's model may raise anything
        raise BrainsurgeonError(
            f'with loss="match" the data holds inputs alone, and the model failed on them ({type(error).__name__}: '
            f"{str(error).strip().partition(chr(10))[0]}): give a tensor, a tuple of what forward takes in its order, "
            "or a dict by its names"
        ) from error


def _axis(path: tuple[str, ...], leaf: Tensor, kind: str) -> int | None:
    """Return the axis of classes: `logits` have it last where they are of tokens, others as PyTorch's losses do."""
    named = path[-1:] == (LOGITS,)
    if kind == "numbers" or leaf.dim() < 2 or (kind == "auto" and not named):
        return None
    axis = leaf.dim() - 1 if named and leaf.dim() == 3 else 1
    return axis if leaf.shape[axis] > 1 else None


def leaves(output: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """Yield the tensors of real numbers of an output, with their places; single numbers and all else are passed by."""
    if isinstance(output, Tensor):
        if output.is_floating_point() and output.dim():
            yield path, output
    elif isinstance(output, Mapping):
        yield from _inside(output.items(), path)
    elif isinstance(output, tuple) and hasattr(output, "_fields"):
        yield from _inside(zip(output._fields, output, strict=True), path)
    elif isinstance(output, list | tuple):
        yield from _inside(enumerate(output), path)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        yield from _inside(((field.name, getattr(output, field.name)) for field in dataclasses.fields(output)), path)


def _inside(entries: Iterable[tuple[Any, Any]], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    return itertools.chain.from_iterable(leaves(value, (*path, str(name))) for name, value in entries)


def _holds_targets(model: nn.Module, batch: Batch) -> bool:
    """Say whether batches are (inputs, targets): pairs, for a model whose forward takes one argument."""
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        return False
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*batch)
    except TypeError:
        return True
    return False
