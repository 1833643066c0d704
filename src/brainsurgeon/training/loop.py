"""The epochs of a fine-tune: every one judged on held-out samples, the best one's weights kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.checks import check_samples, in_words
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.output_costs import backward
from brainsurgeon.samples.augment import Augment
from brainsurgeon.samples.batches import Batch, batch_size, map_tensors
from brainsurgeon.samples.epochs import read_epoch, steps_of
from brainsurgeon.training.freeze import freeze_zeros
from brainsurgeon.training.settings import FinetuneSettings

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters, **options: torch.optim.SGD(parameters, momentum=0.9, nesterov=True, **options),
    "adamw": torch.optim.AdamW,
}


class Tuning:
    """One training run: the model with its loss, the optimizer, and what an epoch needs to know."""

    def __init__(
        self,
        batch_loss: BatchLoss,
        settings: FinetuneSettings,
        held_out: Any,
        augment: Augment | None,
        generator: torch.Generator,
    ):
        self.batch_loss, self.settings, self.augment, self.generator = batch_loss, settings, augment, generator
        self.device = next(batch_loss.model.parameters()).device
        self._held_out = held_out
        self._steps: int | None = None
        self._modes = {module: module.training for module in batch_loss.modules()}
        trained = [parameter for parameter in batch_loss.model.parameters() if parameter.requires_grad]
        self.optimizer = OPTIMIZERS[settings.optimizer](
            trained, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def train(
        self, data: Any, masks: Mapping[str, Tensor], before: float, notify: Callback
    ) -> tuple[list[dict[str, float]], int, float]:
        """Run the epochs; leave the weights of the best held-out loss (the last, where none is held out)."""
        epochs: list[dict[str, float]] = []
        best, best_loss, best_state = 0, before, self._copy()  # where all is finite, to explain a loss that is not
        with freeze_zeros(self.batch_loss.model, self.optimizer, masks) if masks else nullcontext():
            for epoch in range(1, self.settings.epochs + 1):
                mean = self._epoch(data, epoch - 1)
                if not math.isfinite(mean):
                    self._explain(data, epoch, mean, best_state)
                values = {"loss": mean, "held_out": self.held_out_loss()}
                epochs.append(values)
                notify(Event("fine-tune", epoch, self.settings.epochs, values))
                if self._held_out is None:
                    best = epoch
                elif values["held_out"] < best_loss:
                    best, best_loss, best_state = epoch, values["held_out"], self._copy()
                elif self.settings.patience is not None and epoch - best >= self.settings.patience:
                    break
        if self._held_out is not None:
            self.batch_loss.model.load_state_dict(best_state)
        return epochs, best, best_loss

    def _epoch(self, data: Any, epoch: int) -> float:
        self._train_mode()
        total, samples, step = torch.zeros((), device=self.device), 0, 0
        steps = self._steps or steps_of(data, self.settings.batch_size)
        for step, batch in enumerate(read_epoch(data, self.settings.batch_size, self.generator, self.device), 1):
            # In the middle of the step; an epoch that ends nobody knows where has the rate of its middle.
            done = (epoch + (0.5 if steps is None else min((step - 0.5) / steps, 1.0))) / self.settings.epochs
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.rate_at(done)
            self.optimizer.zero_grad()
            pulse()
            loss = self._loss(self._augmented(batch))
            backward(loss)
            self.optimizer.step()
            total += loss.detach() * batch_size(batch)
            samples += batch_size(batch)
        if not samples:
            raise BrainsurgeonError(
                f"epoch {epoch + 1} found no samples: an iterator can be read once only; give a DataLoader or tensors"
            )
        self._steps = steps or step
        return total.item() / samples

    def _augmented(self, batch: Batch) -> Batch:
        """Return a batch as `augment` changes it: one that writes into what it is given writes into a copy."""
        return self.augment(map_tensors(torch.clone, batch), self.generator) if self.augment else batch

    def _train_mode(self) -> None:
        """Train what was in training mode, or all of a model that was not; what was set apart to evaluate stays so."""
        self.batch_loss.train()
        if self._modes[self.batch_loss.model]:
            for module, mode in self._modes.items():
                module.training = mode
        if self.settings.statistics == "kept":
            for module in self.batch_loss.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def _explain(self, data: Any, epoch: int, mean: float, last: dict[str, Any]) -> None:
        """Raise for an epoch whose loss is not finite: by a sample that has none even at good weights, or by steps."""
        self.batch_loss.model.load_state_dict(last)
        self._check(data, "the training samples")
        raise BrainsurgeonError(
            f"fine-tuning diverged in epoch {epoch} (the loss is {mean}): lower the learning rate, which is "
            f"{self.settings.learning_rate}"
        )

    def _check(self, data: Any, what: str) -> None:
        """Refuse data with a sample whose loss is not finite at the weights the model has now."""
        self.batch_loss.eval()
        seen = 0
        for batch in read_epoch(data, self.settings.batch_size, self.generator, self.device):
            with torch.no_grad():
                finite = bool(torch.isfinite(self.batch_loss(batch)))
            if not finite:
                check_samples(self.batch_loss, batch, seen, what)
            seen += batch_size(batch)

    @torch.no_grad()
    def held_out_loss(self, checked: bool = False) -> float:
        """Return the mean loss of the held-out samples in evaluation mode; not a number where there are none.

        With `checked` one that is not finite is laid to a sample; later on, it is the steps that led there.
        """
        if self._held_out is None:
            return math.nan
        self.batch_loss.eval()
        total, samples = 0.0, 0
        for batch in read_epoch(self._held_out, self.settings.batch_size, self.generator, self.device):
            pulse()
            total += float(self._loss(batch)) * batch_size(batch)
            samples += batch_size(batch)
        if not samples:
            raise BrainsurgeonError("there are no held-out samples (an iterator can be read once only): give some")
        mean = total / samples
        if checked and not math.isfinite(mean):
            self._check(self._held_out, "the held-out samples")
        return mean if math.isfinite(mean) else math.inf

    def _loss(self, batch: Batch) -> Tensor:
        with in_words(self.batch_loss.model, batch):
            loss: Tensor = self.batch_loss(batch)
        return loss

    def _copy(self) -> dict[str, Any]:
        return copy.deepcopy(self.batch_loss.model.state_dict())
