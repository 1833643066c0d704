"""How each network is trained: the recorded settings. Needs nothing but the standard library."""

import math
from dataclasses import dataclass

from brainsurgeon.errors import BrainsurgeonError


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained: SGD with Nesterov momentum, the learning rate falling as a cosine to zero."""

    data: str
    epochs: int
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warmup_epochs: float = 1.0  # the learning rate rises linearly for so long
    crop_padding: int = 0  # pixels of the random crop; 0 for none
    flip: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.learning_rate <= 0:
            raise BrainsurgeonError(
                "Expected at least one epoch, a batch of at least one image and a positive learning rate; "
                f"got {self.epochs}, {self.batch_size} and {self.learning_rate}."
            )

    def rate_at(self, progress: float) -> float:
        """Give the learning rate when `progress` epochs are done."""
        warm = min(1.0, progress / self.warmup_epochs) if self.warmup_epochs else 1.0
        return self.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * progress / self.epochs))


_CIFAR_RESNET = TrainSettings("cifar10", epochs=160, learning_rate=0.1, weight_decay=2e-4, crop_padding=4, flip=True)
_MOBILENET = TrainSettings(
    "imagenet", epochs=90, batch_size=256, weight_decay=4e-5, warmup_epochs=5, crop_padding=16, flip=True
)

DEFAULTS: dict[str, TrainSettings] = {
    "mlpnet": TrainSettings("mnist", epochs=25, learning_rate=0.02, weight_decay=1e-4),
    "cifarnet": TrainSettings("cifar10", epochs=120, learning_rate=0.05, warmup_epochs=0.5, crop_padding=4, flip=True),
    **{f"resnet{depth}": _CIFAR_RESNET for depth in (20, 32, 44, 56)},
    **{name: _MOBILENET for name in ("mobilenet", "mobilenet-0.75")},
}


def default_settings(name: str) -> TrainSettings:
    """Look up the settings with which a network is trained."""
    if name not in DEFAULTS:
        raise BrainsurgeonError(f"Unknown network {name!r}. The known ones are: {', '.join(DEFAULTS)}.")
    return DEFAULTS[name]
