"""What a model is worth on held-out data: accuracy and loss, or whatever the user's own score says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.app.target import Target
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import LOSSES, BatchLoss, LossLike, call
from brainsurgeon.network.modes import modes_kept
from brainsurgeon.samples.batches import Batch, as_batches, batch_size, map_tensors

CLASSIFIES = ("cross_entropy", "nll")
IGNORED = -100  # the target that these losses leave out


def measure(target: Target, model: nn.Module | None = None) -> dict[str, float]:
    """Score a model (by default the target's own): {"accuracy": per cent, "loss": mean}, or the user's numbers.

    Empty where the target brings neither held-out data nor a score. The model is in eval mode meanwhile.
    """
    model = target.model if model is None else model
    with modes_kept(model), torch.no_grad():
        model.eval()
        if target.score is not None:
            return _named(target.score(model))
        return {} if target.test is None else _on_batches(target, model)


def _named(found: Any) -> dict[str, float]:
    numbers = found if isinstance(found, Mapping) else {"score": found}
    try:
        return {str(name): float(value) for name, value in numbers.items()}
    except (TypeError, ValueError) as error:
        raise BrainsurgeonError(f"score(model) must return a number, or numbers by name, got {found!r}") from error


def _on_batches(target: Target, model: nn.Module) -> dict[str, float]:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    batch_loss = BatchLoss(model, target.loss)
    losses, right, answers, samples = 0.0, 0, 0, 0
    for batch in _batches(target.test, device):
        loss, hits = _classified(target.loss, model, batch) or (batch_loss(batch), None)
        size = batch_size(batch)
        losses, samples = losses + float(loss) * size, samples + size
        if hits is not None:
            right, answers = right + int(hits.sum()), answers + hits.numel()
    if not samples:
        raise BrainsurgeonError("the test data is empty (a generator can be read once only: give a list or a loader)")
    accuracy = {"accuracy": 100 * right / answers} if answers else {}
    return {**accuracy, "loss": losses / samples}


def _batches(data: Any, device: torch.device) -> Iterator[Batch]:
    for batch in as_batches(data, torch.Generator().manual_seed(0)):
        yield map_tensors(lambda tensor: tensor.to(device), batch)


def _classified(loss: LossLike, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor] | None:
    """Return the loss of a classifier and which of its answers are right; None where this is not classification."""
    if loss == "model" and isinstance(batch, Mapping) and "labels" in batch:  # as Hugging Face's models have it
        output = call(model, batch)
        answers, targets, value = getattr(output, "logits", None), batch["labels"], getattr(output, "loss", None)
        if targets.dim() != 1:  # a language model's answers belong to the tokens after them
            return None
    elif loss in CLASSIFIES and isinstance(batch, list | tuple) and len(batch) == 2:
        targets, value = batch[1], None
        answers = call(model, batch[0])
    else:
        return None
    if not isinstance(answers, Tensor) or targets.is_floating_point() or answers.dim() != targets.dim() + 1:
        return None
    value = LOSSES[str(loss)](answers, targets) if value is None else value
    return value, (answers.argmax(1) == targets)[targets != IGNORED]
