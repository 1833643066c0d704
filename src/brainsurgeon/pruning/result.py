"""What a run gives back: the pruned model and everything worth knowing of how it came about."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.files.writing import plain
from brainsurgeon.pruning.outcome import Examined

if TYPE_CHECKING:
    from brainsurgeon.exact.certificate import Certificate
from brainsurgeon.pruning.patterns import check_masks, is_free, read_pattern


@dataclass(frozen=True)
class LayerRecord:
    """The count of one layer."""

    name: str
    shape: tuple[int, ...]
    pruned: int
    size: int

    @property
    def sparsity(self) -> float:
        """The share of this layer's weights that is gone."""
        return self.pruned / self.size


@dataclass(frozen=True)
class PruningResult:
    """The pruned model, its masks (True where a weight is removed) and the record of the run."""

    model: nn.Module
    masks: Mapping[str, Tensor]
    layers: tuple[LayerRecord, ...]
    sparsity: float
    method: str
    predicted_change: float | None
    loss_before: float | None
    loss_after: float | None
    seconds: dict[str, float]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()
    trace: tuple[Event, ...] = field(default=(), repr=False)
    examined: Examined | None = field(default=None, repr=False, compare=False)

    @property
    def pruned(self) -> int:
        """The number of weights removed, exactly ⌈rN⌉."""
        return sum(layer.pruned for layer in self.layers)

    @property
    def size(self) -> int:
        """N, the number of weights that could have been removed."""
        return sum(layer.size for layer in self.layers)

    @property
    def achieved(self) -> float:
        """The share of the weights that is gone."""
        return self.pruned / self.size

    @property
    def pattern(self) -> Pattern:
        """The pattern of its masks, as the run was asked for."""
        method = self.settings.get("method")
        return read_pattern(method.get("pattern") if isinstance(method, dict) else None)

    def summary(self) -> str:
        """Return the outcome in words and a table of the layers."""
        width = max(len("layer"), *(len(layer.name) for layer in self.layers))
        predicted = "" if self.predicted_change is None else f" (predicted change {self.predicted_change:+.4g})"
        lines = [
            f"{self.method}: {self.pruned:,} of {self.size:,} weights pruned ({self.achieved:.4%}){self._in_pattern()}",
            self._losses() + predicted,
            f"{sum(self.seconds.values()):.1f} s: " + ", ".join(f"{k} {v:.1f}" for k, v in self.seconds.items()),
            "",
            f"{'layer':<{width}}  {'pruned':>10}  {'of':>10}  sparsity",
        ]
        lines += [f"{la.name:<{width}}  {la.pruned:>10,}  {la.size:>10,}  {la.sparsity:8.2%}" for la in self.layers]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _in_pattern(self) -> str:
        return "" if is_free(self.pattern) else f", pattern {self.pattern}"

    def _losses(self) -> str:
        if self.loss_before is None or self.loss_after is None:
            return "no sample loss: there was no data"
        return f"sample loss {self.loss_before:.4g} before, {self.loss_after:.4g} after"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the tensors."""
        return {
            "method": self.method,
            "sparsity": self.sparsity,
            "pruned": self.pruned,
            "size": self.size,
            "predicted_change": self.predicted_change,
            "loss_before": self.loss_before,
            "loss_after": self.loss_after,
            "seconds": self.seconds,
            "settings": self.settings,
            "notes": list(self.notes),
            "layers": [asdict(layer) for layer in self.layers],
            "trace": [{"stage": e.stage, "done": e.done, **e.values} for e in self.trace],
        }

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(plain(self.to_dict()), indent=2, allow_nan=False)

    def certify(self, time_limit: float = 60.0) -> Certificate:
        """Bound the CBS-S cost of every mask with the same counts from below, and compare this one with it.

        The quadratic model must still be there: hold on to the `Surgery` that made this result, or ask for it with
        `prune(…, certifiable=True)`. A result by itself does not keep the gradients in memory.
        """
        from brainsurgeon.exact.certificate import certify

        quadratic = None if self.examined is None else self.examined.quadratic()
        if self.examined is None or quadratic is None:
            raise BrainsurgeonError(
                "the gradients of this result are gone, or it had none: keep the Surgery that makes it "
                "(surgery = brainsurgeon.Surgery(model, data); surgery.prune(0.9).certify()), or call "
                "brainsurgeon.prune(…, certifiable=True)"
            )
        pruned = torch.cat([mask.reshape(-1) for mask in self.masks.values()]).to(quadratic.weights.device)
        return certify(quadratic, self.examined.budget, pruned, time_limit)

    def save(self, folder: str | Path, compressed: bool = False) -> Path:
        """Write the model, its masks and result.json into a new or empty folder.

        Dense: model.safetensors and masks.safetensors; compressed: model.compressed.safetensors, bits and values.
        """
        from brainsurgeon.files import save  # safetensors is needed here alone

        return save(self.model, folder, self.masks, compressed=compressed, record=plain(self.to_dict()))

    @classmethod
    def load(cls, folder: str | Path, model: nn.Module) -> PruningResult:
        """Read what `save` wrote into a model of the same kind (filled in place); all of it is checked first."""
        from brainsurgeon.files import FileError, load

        saved = load(folder, model)
        try:
            return _from_record(model, saved.masks, saved.record or {})
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(
                f"{folder} holds no record of a run by this release ({type(error).__name__}: {error}); "
                "brainsurgeon.load reads its weights and masks"
            ) from error


def _from_record(model: nn.Module, masks: dict[str, Tensor], record: dict[str, Any]) -> PruningResult:
    """Build a result from its record, whose layers must be those of the masks."""
    layers = tuple(
        LayerRecord(str(la["name"]), tuple(la["shape"]), int(la["pruned"]), int(la["size"])) for la in record["layers"]
    )
    found = [(name, tuple(mask.shape), int(mask.sum()), mask.numel()) for name, mask in masks.items()]
    if sorted(found) != sorted((la.name, la.shape, la.pruned, la.size) for la in layers):
        raise ValueError("its layers are not those of the masks")
    predicted = record["predicted_change"]
    result = PruningResult(
        model=model,
        masks={layer.name: masks[layer.name] for layer in layers},
        layers=layers,
        sparsity=float(record["sparsity"]),
        method=str(record["method"]),
        predicted_change=None if predicted is None else float(predicted),
        loss_before=_number(record["loss_before"]),
        loss_after=_number(record["loss_after"]),
        seconds={str(key): float(value) for key, value in record["seconds"].items()},
        settings=dict(record["settings"]),
        notes=tuple(map(str, record["notes"])),
        trace=tuple(Event(event.pop("stage"), event.pop("done"), values=event) for event in map(dict, record["trace"])),
    )
    check_masks(result.pattern, model, result.masks, result.settings.get("without_pattern", ()))
    return result


def _number(value: Any) -> float:
    """Read a number whose infinities JSON had no word for."""
    return math.nan if value is None else float(value)
