"""How a pruned model is fine-tuned. Needs nothing but the standard library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

from brainsurgeon.errors import BrainsurgeonError

OPTIMIZERS = ("sgd", "adamw")
"""SGD with Nesterov momentum of 0.9, and AdamW."""
STATISTICS = ("batch", "kept")
"""Batch normalisation by the statistics of each batch, or by those that the network has, which stay as they are."""


@dataclass(frozen=True)
class FinetuneSettings:
    """How long, how fast and with what; the learning rate rises linearly, then falls as a cosine to zero."""

    epochs: int = 10
    learning_rate: float = 0.01
    batch_size: int = 128
    optimizer: str = "sgd"
    weight_decay: float = 1e-4
    warmup: float = 0.05  # share of the steps
    patience: int | None = 10  # epochs without a better held-out loss; None never stops early
    held_out_share: float = 0.1  # of the training samples, where no others are given; 0 holds none out
    seed: int = 0
    statistics: str = "batch"  # of batch normalisation: each batch's own, or those that were "kept"

    def __post_init__(self) -> None:
        wholes = {"epochs": self.epochs, "batch_size": self.batch_size, "seed": self.seed}
        wholes |= {} if self.patience is None else {"patience": self.patience}
        shares = ("learning_rate", "weight_decay", "warmup", "held_out_share")
        for name, value in {**wholes, **{key: getattr(self, key) for key in shares}}.items():
            kind, word = (Integral, "a whole number") if name in wholes else (Real, "a number")
            if isinstance(value, bool) or not isinstance(value, kind) or value != value:
                raise BrainsurgeonError(f"{name} must be {word}, got {value!r}")
        if self.optimizer not in OPTIMIZERS:
            raise BrainsurgeonError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")
        if self.statistics not in STATISTICS:
            raise BrainsurgeonError(f"statistics must be one of {', '.join(STATISTICS)}, got {self.statistics!r}")
        if self.epochs < 1 or self.batch_size < 1 or self.learning_rate <= 0 or not 0 <= self.warmup < 1:
            raise BrainsurgeonError(
                "expected at least one epoch, batches of at least one sample, a positive learning rate and a warm-up "
                f"of a share of the steps; got {asdict(self)}"
            )
        if not 0 <= self.held_out_share < 1 or (self.patience is not None and self.patience < 1):
            raise BrainsurgeonError("held_out_share must be at least 0 and below 1, and patience 1 or more, or None")

    def rate_at(self, done: float) -> float:
        """Return the learning rate when the share `done` of all steps is behind."""
        rising = min(1.0, done / self.warmup) if self.warmup else 1.0
        return self.learning_rate * rising * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))

    def having(self, options: Mapping[str, Any]) -> FinetuneSettings:
        """Return the settings with some fields by name; refuse a name that there is not."""
        known = [one.name for one in fields(self)]
        if unknown := [name for name in options if name not in known]:
            raise BrainsurgeonError(f"a fine-tune has no setting {unknown[0]!r}: give some of {', '.join(known)}")
        return replace(self, **options)


def settings_of(
    given: FinetuneSettings | None, default: FinetuneSettings, options: Mapping[str, Any]
) -> FinetuneSettings:
    """Return the settings that were given, or the default ones, with some fields by name."""
    if given is not None and not isinstance(given, FinetuneSettings):
        raise BrainsurgeonError(f"settings must be a FinetuneSettings, got {given!r:.60}: give its fields by name")
    return (given or default).having(options)
