"""What `shrink` gives back: the smaller network, and everything worth knowing of how it came about."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from brainsurgeon.events import Event
from brainsurgeon.files.writing import plain
from brainsurgeon.network.loss import LossLike
from brainsurgeon.structured.remove import Cuts
from brainsurgeon.structured.tune import tune
from brainsurgeon.training.finetune import FinetuneResult
from brainsurgeon.training.settings import FinetuneSettings


@dataclass(frozen=True)
class GroupRecord:
    """One group: the layers that write its units, those that read them, and the units that stay."""

    name: str
    units: int
    kept: tuple[int, ...]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    cost: float


@dataclass(frozen=True)
class ShrinkResult:
    """The smaller dense network and the record of the run; multiply-adds and times are of a call on `batch` samples."""

    model: nn.Module
    groups: tuple[GroupRecord, ...]
    multiply_adds: tuple[int, int]
    parameters: tuple[int, int]
    milliseconds: tuple[float, float] | None
    batch: int
    loss_before: float
    loss_after: float
    seconds: dict[str, float]
    settings: dict[str, Any]
    left: dict[str, str]
    notes: tuple[str, ...] = ()
    cuts: Cuts = field(default_factory=lambda: Cuts({}), repr=False)
    trace: tuple[Event, ...] = field(default=(), repr=False)

    @property
    def kept(self) -> dict[str, tuple[int, ...]]:
        """The units that stay, by group."""
        return {group.name: group.kept for group in self.groups}

    @property
    def speed_up(self) -> float | None:
        """How many times faster the smaller network was measured to be; None where no time was taken."""
        return None if self.milliseconds is None else self.milliseconds[0] / self.milliseconds[1]

    def finetune(
        self,
        dense: nn.Module,
        data: Any,
        loss: LossLike = "cross_entropy",
        settings: FinetuneSettings | None = None,
        **options: Any,
    ) -> FinetuneResult:
        """Train a copy of the smaller network, taught by the dense one; options are those of `finetune`, by name."""
        return tune(self.model, dense, self.cuts, data, loss, settings, **options)

    def summary(self) -> str:
        """Return the outcome in words and a table of the groups."""
        width = max(len("group"), *(len(group.name) for group in self.groups))
        lines = [
            f"multiply-adds {self.multiply_adds[0]:,} → {self.multiply_adds[1]:,} ({_share(self.multiply_adds)}), "
            f"parameters {self.parameters[0]:,} → {self.parameters[1]:,} ({_share(self.parameters)})",
            f"sample loss {self.loss_before:.4g} before, {self.loss_after:.4g} after",
        ]
        if self.milliseconds is not None:
            lines.append(
                f"latency {self.milliseconds[0]:.3g} ms → {self.milliseconds[1]:.3g} ms for {self.batch} samples "
                f"({self.speed_up:.2f} times the speed)"
            )
        lines += [
            f"{sum(self.seconds.values()):.1f} s: " + ", ".join(f"{k} {v:.1f}" for k, v in self.seconds.items()),
            "",
            f"{'group':<{width}}  {'kept':>6}  {'of':>6}  written by, read by",
        ]
        lines += [
            f"{g.name:<{width}}  {len(g.kept):>6,}  {g.units:>6,}  {len(g.writers)}, {len(g.readers)}"
            for g in self.groups
        ]
        lines += [f"left alone: {name}: {reason}" for name, reason in self.left.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the tensors."""
        names = ("multiply_adds", "parameters", "milliseconds", "batch", "loss_before", "loss_after", "seconds")
        return {
            **{name: getattr(self, name) for name in (*names, "settings", "left", "notes")},
            "groups": [asdict(group) for group in self.groups],
        }

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(plain(self.to_dict()), indent=2, allow_nan=False)

    def save(self, folder: str | Path) -> Path:
        """Write the smaller network and its record into a new or empty folder; `load_shrunk` reads them."""
        from brainsurgeon.structured.saved import save_shrunk

        return save_shrunk(self, folder)


def _share(pair: tuple[int, int]) -> str:
    return f"{pair[1] / pair[0]:.1%}"


def kept_units(removed: Tensor) -> tuple[int, ...]:
    """Return the numbers of the units that stay."""
    return tuple((~removed).nonzero().squeeze(1).tolist())
