"""What is wanted of a pruned network, where the sparsity that gives it is not known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from brainsurgeon.engine.budget import exact_count
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.compared import LOSS, direction, drop
from brainsurgeon.network.evaluate import takes_model
from brainsurgeon.network.metrics import METRICS

MOST = 0.99
"""The highest sparsity that is tried."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
"""What may stand before the B of bytes, and after a number of multiply-adds."""
Amount = float | str


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The sparsest network that keeps a metric on samples that it was not trained on; or the largest that fits.

    Args:
        metric: a name ("accuracy", "top-5", "f1", "macro-f1", "iou", "perplexity", "r2", "spearman", "loss"), a
            function of the model or of outputs and targets of which more is better, or None for what the loss suggests.
        drop: what may be lost of it, as a share or "1%": of the value for perfect answers (0.01 is one point of
            accuracy), and of the dense network's value where there is no such (perplexity, a loss, a function).
        threshold: the value that it must keep, in place of a drop: at least so much accuracy (in per cent), at most so
            much perplexity.
        target_bytes: the size of the compressed file that must not be exceeded: a number, "5MB", "300kB", or a share of
            the dense file, "10%".
        target_macs: the multiply-adds of one sample that are not with a zero: a number, "40M", or a share, "50%".
        validation: samples to judge on, of any form that `data` may have; by default a fifth of the training samples,
            2,000 at most, is held out for it.
        resolution: the network that is found has at most so much more weights than the next one that missed the goal.
        most: the highest sparsity that is tried.

    A network that fits is the least sparse one; with a metric beside a target the metric is told, and a drop or
    threshold is checked, not sought.
    """

    metric: str | Callable[..., Any] | None = None
    drop: Amount | None = None
    threshold: float | None = None
    target_bytes: Amount | None = None
    target_macs: Amount | None = None
    validation: Any = field(default=None, repr=False, compare=False)
    resolution: float = 0.1
    most: float = MOST

    def __post_init__(self) -> None:
        if not (self.metric is None or callable(self.metric) or self.metric in (*METRICS, LOSS)):
            raise BrainsurgeonError(
                f"unknown metric {self.metric!r}: give one of {', '.join(METRICS)}, {LOSS}, or a function"
            )
        if self.drop is not None and self.threshold is not None:
            raise BrainsurgeonError("give the drop that is allowed, or the threshold to keep, not both")
        if self.target_bytes is not None and self.target_macs is not None:
            raise BrainsurgeonError("give target_bytes or target_macs, not both")
        if all(given is None for given in (self.drop, self.threshold, self.target_bytes, self.target_macs)):
            raise BrainsurgeonError("a goal needs a drop, a threshold, target_bytes or target_macs")
        if self.drop is not None:
            object.__setattr__(self, "drop", _drop(self.drop))
        if self.threshold is not None and not _is_number(self.threshold):
            raise BrainsurgeonError(
                f"threshold is a value of the metric, such as 93.0 of accuracy, got {self.threshold!r}"
            )
        for name in ("target_bytes", "target_macs"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, amount(getattr(self, name), name))
        if not _is_number(self.resolution) or not 0.001 <= self.resolution <= 1:
            raise BrainsurgeonError(
                f"resolution must lie between 0.001 and 1 (0.1: at most a tenth more weights than need be), got "
                f"{self.resolution!r}"
            )
        exact_count(self.most, 1)

    @property
    def sized(self) -> bool:
        """Whether the network must fit, rather than keep a metric."""
        return self.target_bytes is not None or self.target_macs is not None

    @property
    def judged(self) -> bool:
        """Whether a value of the metric is asked for."""
        return self.drop is not None or self.threshold is not None

    def kept(self, metric: Any, dense: float, pruned: float) -> bool:
        """Say whether a network keeps what is asked of the metric; what is not a number keeps nothing."""
        less, scale = direction(metric)
        if self.threshold is not None:
            return pruned <= self.threshold if less else pruned >= self.threshold
        # Rounding must not make a drop of exactly 1% more than 1%.
        return self.drop is None or drop(dense, pruned, less, scale) <= float(self.drop) * (1 + 1e-9)

    def allowed(self, metric: Any, dense: float) -> float:
        """Return the drop that is allowed."""
        if self.threshold is not None:
            return drop(dense, self.threshold, *direction(metric))
        return 1.0 if self.drop is None else float(self.drop)

    def words(self, metric: str) -> str:
        """Return what is asked, in words."""
        if self.drop is not None:
            return f"a drop of {metric} by {float(self.drop):.2%} at most"
        if self.threshold is not None:
            return f"{metric} of {self.threshold:g}"
        what, most = ("bytes", self.target_bytes) if self.target_macs is None else ("multiply-adds", self.target_macs)
        assert most is not None  # amounts are numbers by now
        return f"{float(most):.4g} of the {what}" if float(most) < 1 else f"{int(most):,} {what}"

    def record(self) -> dict[str, Any]:
        """Return what was asked, as plain values."""
        asked = {"max_drop": self.drop, "threshold": self.threshold}
        asked |= {"target_bytes": self.target_bytes, "target_macs": self.target_macs}
        given = {name: value for name, value in asked.items() if value is not None}
        validation = {} if self.validation is None else {"validation": "given"}
        return given | validation | {"resolution": self.resolution, "most": self.most}


def name_of(metric: Any) -> str:
    """Return what a metric is called."""
    return metric if isinstance(metric, str) else getattr(metric, "__name__", "score")


def needs_samples(metric: Any) -> bool:
    """Say whether a metric is measured on samples, rather than by a function of the model alone."""
    return not callable(metric) or not takes_model(metric)


def amount(given: Amount, name: str) -> float:
    """Read an amount: a share below 1 of what the dense network has, or a number of at least 1."""
    found = _read(given, UNITS)
    if (
        found is None
        or not math.isfinite(found)
        or found <= 0
        or (isinstance(given, str) and "%" in given and found >= 1)
    ):
        raise BrainsurgeonError(
            f'{name} is a number, such as 5000000 or "5MB", or a share below 1, "50%"; got {given!r}'
        )
    return found if found < 1 else float(int(found))


def _drop(given: Amount) -> float:
    found = _read(given, {"": 1})
    if found is None or not 0 < found < 1:
        raise BrainsurgeonError(f'drop is a share strictly between 0 and 1, such as 0.01 or "1%", got {given!r}')
    return found


def _read(given: Any, units: dict[str, int]) -> float | None:
    if _is_number(given):
        return float(given)
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*(%|[kmg]i?b?|b?)\s*", str(given).lower())
    if not isinstance(given, str) or found is None or found[1].count(".") > 1 or found[1] == ".":
        return None
    number, unit = float(found[1]), found[2].removesuffix("b")
    return number / 100 if unit == "%" else number * units[unit] if unit in units else None


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
