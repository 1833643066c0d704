"""The layer's problem in coordinates where every input has unit moment and every row counts the same.

With D = diag A and s = b − w̄A, the problem min Σ_o c_o[(w−w̄)A(w−w̄)ᵀ/2 − (w−w̄)sᵀ] over the rows w = w_o becomes
min Σ_o [e Ã eᵀ/2 − e s̃ᵀ] with e = √c_o (w−w̄)√D: one matrix Ã of unit diagonal for all rows, and a weight's size in
these coordinates is what its removal alone costs. The unknown is the distance e from the trained weights, so that
float32 loses nothing by cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError

# A row that counts for nothing still needs finite coordinates: relative to the mean row.
SMALLEST_ROW = 1e-6
# The first ridge under a factor of Ã, by dtype; ten times more each time the factor fails.
RIDGE = {torch.float32: 1e-4, torch.float64: 1e-12}


@dataclass(frozen=True)
class Standard:
    """The problem in unit coordinates: trained weights, moments Ã, slope s̃ (None: zero) and the units.

    `input_unit` is 0 for a dead input, whose weights cost nothing.
    """

    weights: Tensor
    moments: Tensor
    slope: Tensor | None
    row_unit: Tensor
    input_unit: Tensor

    def rows(self, piece: slice) -> Standard:
        """Return the problem of some of the rows."""
        slope = None if self.slope is None else self.slope[..., piece, :]
        return Standard(self.weights[..., piece, :], self.moments, slope, self.row_unit[..., piece, :], self.input_unit)

    def weights_of(self, distance: Tensor, trained: Tensor) -> Tensor:
        """Return w̄ + e in the layer's own coordinates."""
        unit = self.row_unit * torch.where(self.input_unit == 0, 1.0, self.input_unit)
        return (trained.to(distance.dtype) + distance / unit).to(trained.dtype)

    def distance_of(self, weights: Tensor, trained: Tensor) -> Tensor:
        """Return e for given weights."""
        dtype = self.weights.dtype
        return (weights.to(dtype) - trained.to(dtype)) * (self.row_unit * self.input_unit)

    def objective(self, distance: Tensor) -> Tensor:
        """Return e Ã eᵀ/2 − e s̃ᵀ of each row."""
        values = ((distance @ self.moments) * distance).sum(-1) / 2
        return values if self.slope is None else values - (self.slope * distance).sum(-1)

    def residual(self, distance: Tensor) -> Tensor:
        """Return s̃ − e Ã, minus the gradient."""
        product = distance @ self.moments
        return -product if self.slope is None else self.slope - product


def standard_form(
    weights: Tensor,
    moments: Tensor,
    scales: Tensor | None = None,
    linear: Tensor | None = None,
    mean_scale: Tensor | None = None,
) -> Standard:
    """Scale a layer's problem; float64 weights stay so, all others are worked on in float32.

    `weights` is ... x R x m, `moments` ... x m x m, `scales` ... x R, `linear` (b) ... x R x m. `mean_scale` is
    given where the rows are some of a layer's.
    """
    check_layer(weights, moments, scales, linear)
    dtype = torch.float64 if weights.dtype == torch.float64 else torch.float32
    exact = moments.double()
    diagonal = exact.diagonal(dim1=-2, dim2=-1)
    dead = diagonal <= 0
    unit = torch.where(dead, 1.0, diagonal).sqrt()
    unit_moments = exact / (unit.unsqueeze(-1) * unit.unsqueeze(-2))
    # A dead input costs nothing: its weight counts as zero, and a unit diagonal keeps the factors regular.
    unit_moments = unit_moments + torch.diag_embed(dead.double())
    rows = torch.ones(weights.shape[:-1], dtype=torch.float64, device=weights.device)
    if scales is not None:
        mean = scales.double().mean() if mean_scale is None else mean_scale
        rows = (scales.double() / mean.clamp_min(torch.finfo(torch.float64).tiny)).sqrt()
    rows = rows.clamp_min(SMALLEST_ROW).unsqueeze(-1)
    columns = unit.unsqueeze(-2)
    slope = None
    if linear is not None:
        slope = ((linear.double() - weights.double() @ exact) * rows / columns).to(dtype)
    live = weights.double().masked_fill(dead.unsqueeze(-2), 0.0)
    return Standard((live * rows * columns).to(dtype), unit_moments.to(dtype), slope, rows.to(dtype), columns.to(dtype))


def inverse(moments: Tensor, ridge: float = 0.0) -> tuple[Tensor, float]:
    """Return (Ã + ridge I)⁻¹ and the ridge that was needed, raised tenfold until the factor stands."""
    identity = torch.eye(moments.shape[-1], dtype=moments.dtype, device=moments.device)
    ridge = max(ridge, RIDGE[moments.dtype])
    while ridge < 1e3:
        factor, failed = torch.linalg.cholesky_ex(moments + ridge * identity)
        if not bool(failed.any()):
            return torch.cholesky_inverse(factor), ridge
        ridge *= 10
    raise BrainsurgeonError(
        "the moments of a layer's inputs are not positive semi-definite: they must be a sum of x xᵀ, plus damping"
    )


def dot(left: Tensor, right: Tensor) -> Tensor:
    """Return the dot product of each row, as a column."""
    products: Tensor = torch.linalg.vecdot(left, right)
    return products.unsqueeze(-1)


def check_layer(weights: Tensor, moments: Tensor, scales: Tensor | None, linear: Tensor | None) -> None:
    """Refuse shapes that do not belong together and numbers that are not finite."""
    lead, rows, inputs = weights.shape[:-2], weights.shape[-2], weights.shape[-1]
    if moments.shape != (*lead, inputs, inputs):
        raise BrainsurgeonError(
            f"weights of shape {tuple(weights.shape)} need moments of shape {(*lead, inputs, inputs)}, "
            f"got {tuple(moments.shape)}"
        )
    expected = {"scales": (scales, (*lead, rows)), "linear": (linear, tuple(weights.shape))}
    for name, (value, shape) in expected.items():
        if value is not None and tuple(value.shape) != shape:
            raise BrainsurgeonError(f"{name} must have the shape {shape}, got {tuple(value.shape)}")
    for name, value in {"weights": weights, "moments": moments, "scales": scales, "linear": linear}.items():
        if value is not None and not bool(torch.isfinite(value).all()):
            raise BrainsurgeonError(f"the {name} of a layer hold NaN or infinite numbers: look where they come from")
    if scales is not None and bool((scales < 0).any()):
        raise BrainsurgeonError("the scales of a layer's rows must not be negative")
