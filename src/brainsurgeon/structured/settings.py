"""How a network is shrunk. Needs nothing but the standard library."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any

from brainsurgeon.errors import BrainsurgeonError


@dataclass(frozen=True)
class ShrinkSettings:
    """The target, and how it is reached.

    Args:
        macs: the share of the multiply-adds that may stay; one of these three is given.
        parameters: the share of the parameters that may stay.
        units: the share of the units that stays in every group alike.
        max_samples: samples whose inputs to the layers price the units.
        fit_samples: samples that the layers of the smaller network are fitted on.
        damping: added to the moments, relative to their mean diagonal.
        least: every group keeps at least this share of its units.
        multiple: every group keeps a multiple of so many units, where it loses any; kernels like 8 or 16.
        sweeps: rounds of swaps within each group.
        fit: fit the layers of the smaller network to the outputs of the dense one.
        statistics: take the means and variances of batch normalisation anew from the samples.
        batch: samples of the call whose multiply-adds and time are reported.
        seconds: how long each network is timed; 0 takes no time.
        reported: samples on which the loss before and after is reported.
    """

    macs: float | None = None
    parameters: float | None = None
    units: float | None = None
    max_samples: int = 1000
    fit_samples: int = 500
    damping: float = 0.01
    least: float = 0.1
    multiple: int = 1
    sweeps: int = 2
    fit: bool = True
    statistics: bool = False
    batch: int = 1
    seconds: float = 0.5
    reported: int = 256

    def __post_init__(self) -> None:
        given = {name: value for name, value in self._targets().items() if value is not None}
        if len(given) != 1:
            raise BrainsurgeonError(
                f"give one target: macs=0.5, parameters=0.5 or units=0.5; got {', '.join(given) or 'none'}"
            )
        for name, value in {**given, "least": self.least, "damping": self.damping, "seconds": self.seconds}.items():
            if isinstance(value, bool) or not isinstance(value, Real) or not value >= 0:
                raise BrainsurgeonError(f"{name} must be a number of at least 0, got {value!r}")
        if not all(0 < value <= 1 for value in given.values()) or not self.least <= 1 or not self.damping > 0:
            raise BrainsurgeonError(
                f"the target and least must be shares between 0 and 1, and damping positive; got {asdict(self)}"
            )
        for name in ("max_samples", "fit_samples", "multiple", "batch", "reported"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise BrainsurgeonError(f"{name} must be a whole number of at least 1, got {value!r}")

    @property
    def share(self) -> float:
        """The share that may stay."""
        return next(value for value in self._targets().values() if value is not None)

    def _targets(self) -> dict[str, float | None]:
        return {"macs": self.macs, "parameters": self.parameters, "units": self.units}

    @classmethod
    def of(cls, given: dict[str, Any]) -> ShrinkSettings:
        """Return settings by name; refuse a name that there is not."""
        known = [one.name for one in fields(cls)]
        if unknown := [name for name in given if name not in known]:
            raise BrainsurgeonError(f"shrink has no setting {unknown[0]!r}: give some of {', '.join(known)}")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings."""
        return asdict(self)
