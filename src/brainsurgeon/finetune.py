"""A short fine-tune of a pruned model: a schedule, early stopping on held-out data, zeros that stay zero."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .batches import Batch, batch_size
from .epochs import read_epoch, split, steps_of
from .errors import BrainsurgeonError
from .events import Callback, Event, silent
from .finetune_settings import FinetuneSettings
from .freeze import freeze_zeros
from .loss import BatchLoss, LossLike
from .progress import watch
from .zeros import count_zeros, set_zeros, zero_masks

Augment = Callable[[Batch, torch.Generator], Batch]
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters, **options: torch.optim.SGD(parameters, momentum=0.9, nesterov=True, **options),
    "adamw": torch.optim.AdamW,
}


@dataclass(frozen=True)
class FinetuneResult:
    """The fine-tuned model and its record; `best_epoch` is the one whose weights were kept (0: none was better)."""

    model: nn.Module
    masks: dict[str, Tensor]
    pruned: int
    epochs: tuple[dict[str, float], ...]
    best_epoch: int
    held_out_before: float
    held_out_after: float
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> str:
        """Return the outcome in words."""
        held_out = f"held-out loss {self.held_out_before:.4g} before, {self.held_out_after:.4g} after"
        if math.isnan(self.held_out_before):
            held_out = "nothing was held out"
        return (
            f"{held_out} (epoch {self.best_epoch} of {len(self.epochs)} kept); "
            f"{self.pruned:,} weights are exactly zero; {self.seconds:.1f} s"
        )


def finetune(
    model: nn.Module,
    data: Any,
    loss: LossLike = "cross_entropy",
    settings: FinetuneSettings | None = None,
    *,
    masks: Mapping[str, Tensor] | None = None,
    held_out: Any = None,
    augment: Augment | None = None,
    in_place: bool = False,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
    **options: Any,
) -> FinetuneResult:
    """Train the kept weights of a pruned model for a few epochs; the pruned ones stay exactly zero.

    Args:
        model: a pruned model; a trained copy is returned unless `in_place`.
        data: training samples, in any of the forms that `brainsurgeon.prune` takes (an iterator cannot be read twice).
        loss: as for `brainsurgeon.prune`.
        settings: a `FinetuneSettings`, or its fields by name: epochs=10, learning_rate=0.01, optimizer="adamw", …
        masks: True where a weight is removed; by default the exact zeros of the prunable weights.
        held_out: samples that choose the epoch whose weights are kept, and stop early; by default a tenth of the
            training samples, taken out of them. A loader cannot be split: give these, or held_out_share=0, with which
            the last weights are kept.
        augment: changes a training batch, drawing from the generator it is given.
        in_place: train the model itself.
        device: where to work; by default where the model is.
        progress: show a bar; by default where there is a terminal.
        callback: told of every epoch.
        options: the fields of `FinetuneSettings` by name.
    """
    settings = settings or FinetuneSettings(**options)
    started = time.perf_counter()
    model = model if in_place else copy.deepcopy(model)
    model.to(device or next(model.parameters()).device)
    masks = dict(zero_masks(model) if masks is None else masks)
    set_zeros(model, masks)
    generator = torch.Generator().manual_seed(settings.seed)
    if held_out is None and settings.held_out_share:
        data, held_out = split(data, settings.held_out_share, generator)
    run = _Run(BatchLoss(model, loss), settings, held_out, augment or _unchanged, generator)
    was_training = model.training
    before = run.held_out_loss()
    with watch(callback or silent, progress) as notify:
        epochs, best, after = run.train(data, masks, before, notify)
    model.train(was_training)
    return FinetuneResult(
        model,
        masks,
        count_zeros(model, masks),
        tuple(epochs),
        best,
        before,
        after,
        time.perf_counter() - started,
        asdict(settings),
    )


class _Run:
    """One training run: what an epoch needs to know."""

    def __init__(
        self,
        batch_loss: BatchLoss,
        settings: FinetuneSettings,
        held_out: Any,
        augment: Augment,
        generator: torch.Generator,
    ):
        self.batch_loss, self.settings, self.augment, self.generator = batch_loss, settings, augment, generator
        self.device = next(batch_loss.model.parameters()).device
        self._held_out = held_out
        trained = [parameter for parameter in batch_loss.model.parameters() if parameter.requires_grad]
        self.optimizer = OPTIMIZERS[settings.optimizer](
            trained, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def train(
        self, data: Any, masks: Mapping[str, Tensor], before: float, notify: Callback
    ) -> tuple[list[dict[str, float]], int, float]:
        """Run the epochs; leave the weights of the best held-out loss (the last, where none is held out)."""
        epochs: list[dict[str, float]] = []
        best, best_loss, best_state = 0, before, _copy_state(self.batch_loss.model)
        with freeze_zeros(self.batch_loss.model, self.optimizer, masks):
            for epoch in range(1, self.settings.epochs + 1):
                values = {"loss": self._epoch(data, epoch - 1), "held_out": self.held_out_loss()}
                epochs.append(values)
                notify(Event("fine-tune", epoch, self.settings.epochs, values))
                if self._held_out is None or values["held_out"] < best_loss:
                    best, best_loss, best_state = epoch, values["held_out"], _copy_state(self.batch_loss.model)
                elif self.settings.patience is not None and epoch - best >= self.settings.patience:
                    break
        self.batch_loss.model.load_state_dict(best_state)
        return epochs, best, best_loss

    def _epoch(self, data: Any, epoch: int) -> float:
        self.batch_loss.train()
        total, samples, steps = torch.zeros((), device=self.device), 0, steps_of(data, self.settings.batch_size)
        for step, batch in enumerate(read_epoch(data, self.settings.batch_size, self.generator, self.device), 1):
            done = (epoch + min((step - 0.5) / steps, 1.0)) / self.settings.epochs  # in the middle of the step
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.rate_at(done)
            self.optimizer.zero_grad()
            loss = self.batch_loss(self.augment(batch, self.generator))
            loss.backward()
            self.optimizer.step()
            total += loss.detach() * batch_size(batch)
            samples += batch_size(batch)
        if not samples:
            raise BrainsurgeonError(
                f"epoch {epoch + 1} found no samples: an iterator can be read once only; give a DataLoader or tensors"
            )
        mean = total.item() / samples
        if not math.isfinite(mean):
            raise BrainsurgeonError(
                f"fine-tuning diverged in epoch {epoch + 1} (the loss is {mean}): lower the learning rate, which is "
                f"{self.settings.learning_rate}"
            )
        return mean

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Return the mean loss of the held-out samples in evaluation mode; not a number where there are none."""
        if self._held_out is None:
            return math.nan
        self.batch_loss.eval()
        total, samples = 0.0, 0
        for batch in read_epoch(self._held_out, self.settings.batch_size, self.generator, self.device):
            total += float(self.batch_loss(batch)) * batch_size(batch)
            samples += batch_size(batch)
        if not samples:
            raise BrainsurgeonError("there are no held-out samples (an iterator can be read once only): give some")
        return total / samples


def _copy_state(model: nn.Module) -> dict[str, Any]:
    return copy.deepcopy(model.state_dict())


def _unchanged(batch: Batch, generator: torch.Generator) -> Batch:
    return batch
