"""What a model is worth on the target's held-out data: by its score, or by what its loss suggests."""

from __future__ import annotations

from torch import nn

from brainsurgeon.app.target import Target
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.evaluate import evaluate, metric_names, takes_model


def measure(target: Target, model: nn.Module | None = None) -> dict[str, float]:
    """Score a model (by default the target's own): numbers by name, as `brainsurgeon.evaluate` gives them.

    Empty where the target brings neither held-out data nor a score. The model is in eval mode meanwhile.
    """
    model = target.model if model is None else model
    if target.score is None and target.test is None:
        return {}
    needs_data = metric_names(target.score) is not None or not takes_model(target.score)
    if target.test is None and needs_data:
        raise BrainsurgeonError(f"score {target.score!r} is measured on held-out data: give the target test=… as well")
    return evaluate(model, target.test, target.score, target.loss)
