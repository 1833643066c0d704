"""How a model is examined: every setting by name, checked before any work."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from .errors import BrainsurgeonError
from .weights import Rule

FISHERS = ("empirical", "sampled", "exact")


@dataclass(frozen=True)
class Settings:
    """What `prune` and `Surgery` take to examine a model; `brainsurgeon.prune` says what each means."""

    include: Rule = None
    exclude: Rule = None
    blocks: str | int = "auto"
    num_gradients: int = 1000
    gradient_batch: int = 1
    fisher: str = "empirical"
    loss_samples: int = 5000
    damping: float = 1e-4
    first_order: bool = False
    device: str | torch.device | None = None
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_gradients", "gradient_batch", "loss_samples"):
            if getattr(self, name) < 1:
                raise BrainsurgeonError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.fisher not in FISHERS:
            raise BrainsurgeonError(
                'fisher says which labels the gradients are taken at: "empirical" (the data\'s), "sampled" (drawn from '
                f'the model\'s prediction) or "exact" (all, by their probabilities), got {self.fisher!r}'
            )
        if self.fisher == "exact" and self.gradient_batch > 1:
            raise BrainsurgeonError(
                f'with fisher="exact" a row is of one sample, got gradient_batch={self.gradient_batch}: leave it at 1, '
                'or take fisher="sampled"'
            )
        if not self.dtype.is_floating_point:
            raise BrainsurgeonError(f"gradients are stored in a floating-point type such as bfloat16, got {self.dtype}")
        if not self.damping > 0:
            raise BrainsurgeonError(f"damping must be positive (the paper uses 1e-3 and 1e-5), got {self.damping!r}")

    def record(self) -> dict[str, Any]:
        """Return the settings as plain values, for the result."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = (str, int, float, type(None))
        return {name: value if isinstance(value, plain) else repr(value) for name, value in values.items()}
