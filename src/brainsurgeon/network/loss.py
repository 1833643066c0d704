"""One loss for every calling convention: a module from a batch to the mean loss of its samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.precision import has_recurrent, without_cudnn
from brainsurgeon.network.token_loss import next_token_loss
from brainsurgeon.samples.batches import Batch

LossLike = str | Callable[..., Tensor]
NEXT_TOKEN = "next_token"
"""The cross entropy of each token given those before it."""
MATCH = "match"
"""The distance from the dense model's outputs, which `Surgery` makes a loss of (`network/match.py`)."""

Elementwise = Callable[[Tensor, Tensor], Tensor]


def _number_by_number(loss: Elementwise) -> Elementwise:
    """Return a loss that compares each output with its target: torch would stretch (n, 1) and (n,) to (n, n)."""

    def compared(output: Tensor, target: Tensor) -> Tensor:
        if output.shape == target.shape:
            return loss(output, target)
        if output.numel() != target.numel() or output.squeeze().shape != target.squeeze().shape:
            raise BrainsurgeonError(
                f"this loss compares each output with its target, and the outputs are {tuple(output.shape)} where the "
                f"targets are {tuple(target.shape)}: give targets of the outputs' shape"
            )
        return loss(output, target.reshape(output.shape))

    return compared


LOSSES: dict[str, Elementwise] = {
    "cross_entropy": F.cross_entropy,
    "nll": F.nll_loss,
    "mse": _number_by_number(F.mse_loss),
    "l1": _number_by_number(F.l1_loss),
    "huber": _number_by_number(F.huber_loss),
    "bce_with_logits": _number_by_number(F.binary_cross_entropy_with_logits),
}


class BatchLoss(nn.Module):
    """The mean loss of a batch, as a module that holds the model."""

    def __init__(self, model: nn.Module, loss: LossLike):
        super().__init__()
        self.model = model
        self._loss = _as_model_loss(loss)
        self._recurrent = has_recurrent(model)

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss, a scalar."""
        with without_cudnn() if self._recurrent else nullcontext():
            value = self._loss(self.model, batch)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise BrainsurgeonError(f"the loss of a batch must be one number (the mean over its samples), got {got}")
        return value.reshape(())


def _as_model_loss(loss: LossLike) -> Callable[[nn.Module, Batch], Tensor]:
    """Bring a name, a `loss(output, target)` or a `loss(model, batch)` to the last form."""
    if loss == "model":
        return _own_loss
    if loss == NEXT_TOKEN:
        return _next_token
    if isinstance(loss, str):
        if loss.partition(":")[0] == MATCH:
            raise BrainsurgeonError(
                f"loss={loss!r} is the distance from the dense model, which only pruning knows (prune, Surgery, "
                "sensitivity): give the loss that the model was trained with"
            )
        if loss not in LOSSES:
            known = ", ".join(['"model"', '"next_token"', '"match"', *(f'"{name}"' for name in LOSSES)])
            raise BrainsurgeonError(f"unknown loss {loss!r}: give one of {known}, or a callable")
        return _on_output(LOSSES[loss])
    if not callable(loss):
        raise BrainsurgeonError(f"loss must be a name or a callable, got {type(loss).__name__}")
    return loss if _takes_model(loss) else _on_output(loss)


def _takes_model(loss: Callable[..., Tensor]) -> bool:
    """Say whether this is a `loss(model, batch)`: its first parameter is called `model`."""
    try:
        parameters = list(inspect.signature(loss).parameters)
    except (TypeError, ValueError):  # builtins without a signature take (output, target)
        return False
    return bool(parameters) and parameters[0] == "model"


def _on_output(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[nn.Module, Batch], Tensor]:
    def of_model(model: nn.Module, batch: Batch) -> Tensor:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise BrainsurgeonError(
                "with this loss a batch must be (inputs, targets), got "
                f"{_describe(batch)}; for other batches give loss as a function of (model, batch)"
            )
        inputs, targets = batch
        output = call(model, inputs)
        if not isinstance(output, Tensor) and loss in LOSSES.values():
            raise BrainsurgeonError(
                f"the model's output is {_describe(output)}, and this loss takes one tensor: give the loss as a "
                "function that picks it, such as lambda output, target: F.cross_entropy(output[0], target)"
            )
        return loss(output, targets)

    return of_model


@dataclass(frozen=True)
class OutputLoss:
    """A loss in two steps: from model and batch to outputs, one tensor, and from those and the batch to the loss.

    `axis` is that of the classes, None where the outputs are no scores of classes; `variance` is then that of the
    dense outputs. A loss that is a distance from the dense outputs itself is `own`; its outputs are all that it
    compares.
    """

    outputs: Callable[[nn.Module, Batch], Any]
    loss: Callable[[Any, Batch], Tensor]
    axis: int | None
    variance: float = 1.0
    own: Any = None

    def are_scores(self, outputs: Any) -> bool:
        """Say whether outputs are scores of classes, one row a sample."""
        return self.axis == 1 and isinstance(outputs, Tensor) and outputs.dim() == 2

    def loss_beside(self, found: Any, wanted: Any, batch: Batch) -> Tensor:
        """Return the loss of outputs, where the dense model's are known: it need not ask for them again."""
        return self.loss(found, batch) if self.own is None else self.distance(found, wanted)

    def distance(self, found: Any, wanted: Any, temperature: float = 1.0) -> Tensor:
        """Return the mean distance of outputs from the dense model's."""
        if self.own is not None:
            value: Tensor = self.own.distance(found, wanted, temperature)
            return value
        return distance(found, wanted, self.axis, temperature, self.variance)

    def distance_from(self, dense: nn.Module) -> Callable[[nn.Module, Batch], Tensor]:
        """Return the distance of a model's outputs from the dense one's, as a `loss(model, batch)`.

        Its gradient at the dense weights is zero; for classes its Hessian there is the Fisher matrix.
        """

        def between(model: nn.Module, batch: Batch) -> Tensor:
            with torch.no_grad():
                wanted = self.outputs(dense, batch)
            return self.distance(self.outputs(model, batch), wanted)

        return between


def distance(
    found: Tensor, wanted: Tensor, axis: int | None, temperature: float = 1.0, variance: float = 1.0
) -> Tensor:
    """Return the mean divergence of predictions along an axis of classes, else the relative squared difference.

    The variance is given, not taken of `wanted`: every batch is measured alike, and one may hold a single number.
    """
    if axis is None:
        return (found - wanted).square().mean() / variance
    wide = torch.promote_types(wanted.dtype, torch.float32)  # half precision cannot hold the logarithms
    p = (wanted.to(wide) / temperature).log_softmax(axis)
    q = (found.to(wide) / temperature).log_softmax(axis)
    return temperature**2 * (p.exp() * (p - q)).sum(axis).mean()


def variance_of(values: Tensor) -> float:
    """Return the variance of an output's numbers; where they are all the same their square, or 1 where that is 0."""
    wide = values.detach().cpu().double()
    square, variance = float(wide.square().mean()), float(wide.var(correction=0))
    return variance if variance > 1e-12 * square else square or 1.0


def output_loss(loss: LossLike, model: nn.Module, probe: Batch) -> OutputLoss | None:
    """Return the two steps of a loss, None where it does not show the outputs: a `loss(model, batch)`, or no tensor.

    `model` is the dense one; the variance of its outputs for the `probe` is their scale.
    """
    if loss == NEXT_TOKEN:
        return OutputLoss(token_logits, _token_loss, -1)
    if hasattr(loss, "output_loss"):  # it knows its steps
        steps: OutputLoss = loss.output_loss()
        return steps
    if loss == "model" or (not isinstance(loss, str) and _takes_model(loss)):
        return None
    with torch.no_grad():
        found = call(model, probe[0])
    if not isinstance(found, Tensor):
        return None
    function = LOSSES[loss] if isinstance(loss, str) else loss
    axis, variance = (1, 1.0) if _of_classes(loss) else (None, variance_of(found))
    return OutputLoss(lambda m, b: call(m, b[0]), lambda out, b: function(out, b[1]), axis, variance)


def _of_classes(loss: LossLike) -> bool:
    named = loss in ("cross_entropy", "nll", F.cross_entropy, F.nll_loss)
    return named or isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)


def _next_token(model: nn.Module, batch: Batch) -> Tensor:
    """Return a language model's mean cross entropy of each token given those before it; a batch holds token numbers."""
    return _token_loss(token_logits(model, batch), batch)


def _token_loss(logits: Tensor, batch: Batch) -> Tensor:
    return next_token_loss(logits, _tokens(batch))


def _tokens(batch: Batch) -> Tensor:
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else batch
    if isinstance(tokens, list | tuple) and len(tokens) == 1:
        tokens = tokens[0]
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.is_floating_point() or tokens.shape[1] < 2:
        raise BrainsurgeonError(
            'with loss="next_token" a batch must be samples × tokens, whole numbers, at least two of them, or a dict '
            f"with such input_ids, got {_describe(batch)}"
        )
    return tokens


def token_logits(model: nn.Module, batch: Batch) -> Tensor:
    """Return a language model's scores, samples × tokens × vocabulary."""
    # A cache of keys and values would only take memory, and would tie one call to the next.
    extra = {"use_cache": False} if hasattr(getattr(model, "config", None), "use_cache") else {}
    tokens = _tokens(batch)  # refused here if they are none
    output = model(**batch, **extra) if isinstance(batch, Mapping) else model(tokens, **extra)
    found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        raise BrainsurgeonError(
            f"a language model must give logits, a tensor or an output that has them, got {_describe(output)}"
        )
    return found


def _own_loss(model: nn.Module, batch: Batch) -> Tensor:
    output = call(model, batch)
    value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if value is None:
        raise BrainsurgeonError(
            'loss="model" needs a model whose output has a .loss (does the batch hold the labels?); '
            f"got {type(output).__name__}"
        )
    return value


def call(model: nn.Module, inputs: Any) -> Any:
    """Call a model on a tensor, on several (a tuple or list), or by keyword (a dict)."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, list | tuple):
        return model(*inputs)
    return model(inputs)


def _describe(batch: Batch) -> str:
    if isinstance(batch, list | tuple):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"a {type(batch).__name__}"
