"""A short fine-tune of a pruned model: a schedule, early stopping on held-out data, zeros that stay zero."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.events.progress import watch
from brainsurgeon.network.checks import BadSampleError
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.memory import check_device
from brainsurgeon.network.modes import dense_gradients, modes_kept, own_mode
from brainsurgeon.network.zeros import check_masks, count_zeros, set_zeros, zero_masks
from brainsurgeon.pruning.surgery import copied
from brainsurgeon.samples.augment import Augment
from brainsurgeon.samples.batches import as_seed
from brainsurgeon.samples.epochs import split
from brainsurgeon.training.loop import Tuning
from brainsurgeon.training.settings import FinetuneSettings, settings_of


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
        zeros = f"{self.pruned:,} weights are exactly zero; " if self.masks else ""
        return f"{held_out} (epoch {self.best_epoch} of {len(self.epochs)} kept); {zeros}{self.seconds:.1f} s"


@own_mode(autocast=True)
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
        masks: True where a weight is removed; by default the exact zeros of the prunable weights; {} for a dense model,
            as `brainsurgeon.shrink` gives it.
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
    settings = settings_of(settings, FinetuneSettings(), options)
    started = time.perf_counter()
    trained = next((parameter for parameter in model.parameters() if parameter.requires_grad), None)
    if trained is None:
        raise BrainsurgeonError(
            "the model has no parameter to train: model.requires_grad_() lets all of them be trained"
        )
    place = check_device(device or trained.device)
    model = (model if in_place else copied(model)).to(place)
    masks = zero_masks(model) if masks is None else check_masks(model, masks) if masks else {}
    if masks:
        set_zeros(model, masks)
    generator = torch.Generator().manual_seed(as_seed(settings.seed))
    whole = data
    if held_out is None and settings.held_out_share:
        data, held_out = split(data, settings.held_out_share, generator)
    with modes_kept(model), dense_gradients(model), watch(callback or silent, progress) as notify:
        clock = Clock(place, notify)
        run = Tuning(BatchLoss(model, loss), settings, held_out, augment, generator)
        try:
            with clock.running():
                before = run.held_out_loss(checked=True)
                epochs, best, after = run.train(data, masks, before, clock.notify)
        except BadSampleError as error:
            raise error.located(whole, held_out) from error
    return FinetuneResult(
        model,
        masks,
        count_zeros(model, masks) if masks else 0,
        tuple(epochs),
        best,
        before,
        after,
        time.perf_counter() - started,
        asdict(settings),
    )
