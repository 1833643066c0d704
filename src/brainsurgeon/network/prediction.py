"""What a model's outputs say of the labels, p(y|f), for the losses that are a mean of −log p.

| loss | a term's p(y|f) | ∇_f(−log p) | Λ |
|---|---|---|---|
| cross_entropy, nll | softmax, p | p − e_y | diag(p) − ppᵀ |
| bce_with_logits | Bernoulli, p = σ(f) | p − y | p(1 − p) |
| mse | Gaussian around f of variance ½ | 2(f − y) | 2 |

Λ = E_y[∇_f log p ∇_f log pᵀ] is the Fisher matrix of a term. The variance ½ makes (f − y)² equal to −log p up to a
constant; a mean over D such terms, taken as one −log p, is that of variance D/2, which comes to the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import LossLike

CLASSES, BERNOULLI, GAUSSIAN = "classes", "bernoulli", "gaussian"
KNOWN: dict[Any, str] = {
    "cross_entropy": CLASSES,
    F.cross_entropy: CLASSES,
    nn.CrossEntropyLoss: CLASSES,
    "nll": CLASSES,
    F.nll_loss: CLASSES,
    nn.NLLLoss: CLASSES,
    "bce_with_logits": BERNOULLI,
    F.binary_cross_entropy_with_logits: BERNOULLI,
    nn.BCEWithLogitsLoss: BERNOULLI,
    "mse": GAUSSIAN,
    F.mse_loss: GAUSSIAN,
    nn.MSELoss: GAUSSIAN,
}


@dataclass(frozen=True)
class Prediction:
    """p(y|f) of a loss whose value for a sample is the mean over M terms: one label, T places, or D numbers."""

    kind: str
    ignored: int = -100

    def draw(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return ∇_f(−log p(y|f)) of each term at a y drawn from p, shaped as the outputs."""

        def noise(make: Any, like: Tensor) -> Tensor:  # from the CPU, so that a seed means the same on every device
            return make(like.shape, generator=generator, dtype=like.dtype).to(like.device)

        if self.kind == GAUSSIAN:
            return 2**0.5 * noise(torch.randn, outputs)
        if self.kind == BERNOULLI:
            p = outputs.sigmoid()
            return p - (noise(torch.rand, p) < p).to(p)
        p = outputs.softmax(1)
        label = (p.cumsum(1) <= noise(torch.rand, p[:, :1])).sum(1, keepdim=True).clamp_max(p.shape[1] - 1)
        return p.scatter_add(1, label, -torch.ones_like(p))

    def root(self, outputs: Tensor) -> Tensor:
        """Return the columns of a square root of Λ, for N samples of R outputs N×R of the shape of the outputs."""
        if self.kind != CLASSES:
            p = outputs.reshape(len(outputs), -1).sigmoid()
            scale = (p * (1 - p)).sqrt() if self.kind == BERNOULLI else torch.full_like(p, 2**0.5)
            return torch.diag_embed(scale).reshape(*p.shape, *outputs.shape[1:])
        p = outputs.softmax(1).reshape(*outputs.shape[:2], -1)  # N×C×T, T = 1 for a single label
        classes, places = (torch.eye(n, dtype=p.dtype, device=p.device) for n in p.shape[1:])
        # √p_c ∇(−log p_c) at one place and nothing at the others, for every label c and place t
        columns = p.sqrt().unsqueeze(2) * (p.unsqueeze(1) - classes.unsqueeze(2))
        return torch.einsum("nckt,tu->nctku", columns, places).reshape(len(p), -1, *outputs.shape[1:])

    def share(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1/√M at the terms that count and 0 at those that the loss leaves out, shaped as the outputs."""
        if self.kind != CLASSES:
            return torch.full_like(outputs, outputs[0].numel() ** -0.5)
        counted = torch.ones_like(outputs[:, :1])
        if not targets.is_floating_point():  # else they are probabilities, and none is left out
            counted = (targets != self.ignored).to(counted).view_as(counted)
        terms = counted.flatten(1).sum(1).clamp_min(1).view(-1, *[1] * (outputs.dim() - 1))
        return (counted / terms.sqrt()).expand_as(outputs)


def prediction_of(loss: LossLike) -> Prediction:
    """Return p(y|f) under this loss; refuse a loss that is no mean of a −log p that we know."""
    module = loss if isinstance(loss, nn.Module) else None
    kind = next((kind for known, kind in KNOWN.items() if known == (loss if module is None else type(loss))), None)
    plain = module is None or (
        getattr(module, "reduction", None) == "mean"
        and getattr(module, "weight", None) is None
        and getattr(module, "pos_weight", None) is None
        and not getattr(module, "label_smoothing", 0.0)
    )
    if kind is None or not plain:
        raise BrainsurgeonError(
            'fisher="sampled" and "exact" must know the distribution that the outputs stand for: give the loss as '
            '"cross_entropy", "nll", "bce_with_logits" or "mse", or as the function or module of PyTorch by that name '
            f"(the mean, without weights or smoothing), got {loss!r}. For any other loss, or a loss(model, batch), "
            'take fisher="empirical"'
        )
    return Prediction(kind, getattr(loss, "ignore_index", -100))
