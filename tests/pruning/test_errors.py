"""Every bad input has an answer that says what was expected and what to do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import CASES
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils import prune as torch_prune

from brainsurgeon import BrainsurgeonError, Surgery, prune
from brainsurgeon.network import memory

QUICK: dict[str, Any] = {"num_gradients": 8, "progress": False}


def model() -> nn.Module:
    return CASES["linear"].model()


def data() -> tuple[Tensor, Tensor]:
    return CASES["linear"].data()


def changed(change: Callable[[nn.Module], object]) -> nn.Module:
    network = model()
    with torch.no_grad():
        change(network)
    return network


def broken_inputs() -> tuple[Tensor, Tensor]:
    inputs, labels = data()
    return inputs * torch.nan, labels


class Noisy(nn.Linear):
    """Drops out whatever the mode."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, training=True)


BAD_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "sparsity 0": ({"sparsity": 0}, "sparsity must lie strictly between 0 and 1 .* got 0"),
    "sparsity 1": ({"sparsity": 1.0}, "strictly between 0 and 1"),
    "sparsity in percent": ({"sparsity": 90}, "strictly between 0 and 1 .* got 90"),
    "negative sparsity": ({"sparsity": -0.1}, "strictly between 0 and 1"),
    "sparsity that is not a number": ({"sparsity": float("nan")}, "strictly between 0 and 1"),
    "sparsity in words": ({"sparsity": "0.9"}, "strictly between 0 and 1 .* got '0.9'"),
    "sparsity as a tensor": ({"sparsity": torch.tensor(0.9)}, "strictly between 0 and 1"),
    "model that is no model": ({"model": len}, "model must be a torch.nn.Module, got builtin_function"),
    "samples without a sample": ({"data": (torch.ones(0, 6), torch.ones(0))}, "the data gave no gradient"),
    "no data": ({"data": []}, "the data gave no gradient: it is empty"),
    "no data where no gradient is needed": ({"data": [], "method": "mp"}, "the data is empty"),
    "data that is no data": ({"data": 3}, "data must be .* got int"),
    "no network weights": ({"model": nn.ReLU()}, "nothing to prune: no trainable weight"),
    "pattern for nothing": (
        {"include": "conv*"},
        r"pattern 'conv\*' matches no parameter; the model has: 0.weight",
    ),
    "type for nothing": ({"exclude": nn.Conv2d}, "module type Conv2d matches no parameter"),
    "rule that is no rule": (
        {"include": 5},
        "include and exclude take names, patterns and module types, got 5",
    ),
    "everything excluded": ({"exclude": nn.Linear}, "nothing to prune"),
    "batch of another form": (
        {"data": [torch.ones(4, 6)]},
        r"a batch must be \(inputs, targets\), got a Tensor",
    ),
    "batch with text": ({"data": [(torch.ones(4, 6), ["a"] * 4)]}, "must hold tensors only .* got a str"),
    "batch of unequal parts": ({"data": (torch.ones(4, 6), torch.ones(3))}, "one entry per sample"),
    "NaN in the data": ({"data": broken_inputs()}, "the loss of the model on the first batch is nan"),
    "unknown loss": ({"loss": "crossentropy"}, "unknown loss 'crossentropy'"),
    "loss that is no loss": ({"loss": 3}, "loss must be a name or a callable"),
    "loss per sample": ({"loss": nn.CrossEntropyLoss(reduction="none")}, "must be one number"),
    "unknown method": ({"method": "cbs-x"}, "unknown method 'cbs-x'. Did you mean 'cbs"),
    "no method": ({"method": None}, "method must be a name, or a pair .* got None; the names are: mp"),
    "pair of names": (
        {"method": ("mp", "cbs-u")},
        "method must be a name, or a pair of a selection and an update",
    ),
    "unknown setting": ({"num_draw": 3}, "unknown setting 'num_draw' .*Did you mean 'num_draws'"),
    "bad scale": ({"update_scale": "big"}, 'update_scale must be "auto" or a number'),
    "gradients as integers": ({"dtype": torch.int32}, "floating-point type .* got torch.int32"),
    "bad blocks": ({"blocks": "columns"}, 'blocks must be "model", "layer", "auto"'),
    "bad damping": ({"damping": 0.0}, "damping must be positive"),
    "no gradients": ({"num_gradients": 0}, "num_gradients must be at least 1, got 0"),
    "no samples a row": ({"gradient_batch": 0}, "gradient_batch must be at least 1"),
    "no samples for the loss": ({"loss_samples": 0}, "loss_samples must be at least 1"),
    "rows larger than the data": ({"gradient_batch": 41}, "fewer than gradient_batch=41 samples"),
    "unknown budget": ({"budget": "layerwise"}, 'budget must be "global", "uniform" or'),
    "budget for no layer": (
        {"budget": {"7.*": 0.5}},
        r"budget pattern '7\.\*' matches no layer; the layers are: 0",
    ),
    "budget out of range": ({"budget": {"0.*": 1.5}}, "strictly between 0 and 1"),
    "budget that leaves too much": (
        {"budget": {"*": 0.2}},
        "the budget cannot be met: 36 weights are to be pruned",
    ),
    "budget that takes too much": ({"budget": {"0.*": 0.99}}, "cannot be met: 36 .* fix 48"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_call_is_answered(name: str) -> None:
    arguments, message = BAD_CALLS[name]
    call = {"model": model(), "data": data(), "sparsity": 0.5, **QUICK, **arguments}
    with pytest.raises(BrainsurgeonError, match=message):
        prune(**call)


BAD_MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "NaN in a weight": (
        lambda: changed(lambda m: m[2].weight.view(-1)[3].fill_(torch.nan)),  # type: ignore[index]
        {},
        "parameter '2.weight' holds NaN or infinite values",
    ),
    "infinite weight": (
        lambda: changed(lambda m: m[0].weight.view(-1)[0].fill_(torch.inf)),  # type: ignore[index]
        {},
        "parameter '0.weight' holds NaN or infinite values",
    ),
    "frozen parameter asked for": (
        lambda: model().requires_grad_(False),
        {"include": "2.weight"},
        "parameter '2.weight' is frozen .* unfreeze it",
    ),
    "all frozen": (lambda: model().requires_grad_(False), {}, "nothing to prune"),
    "weight norm": (
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 3))),
        {},
        "is parametrised, .*remove_parametrizations",
    ),
    "spectral norm": (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 3))),
        {},
        "is parametrised",
    ),
    "mask of another tool": (
        lambda: changed(lambda m: torch_prune.l1_unstructured(m[0], "weight", 0.5)),  # type: ignore[index]
        {},
        r"'0\.weight_orig' already carries a mask of torch.nn.utils.prune: make it permanent",
    ),
    "noise in the forward pass": (lambda: nn.Sequential(Noisy(6, 3)), {}, "the loss is not deterministic"),
}


@pytest.mark.parametrize("method", ["mp", "cbs"])
@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_model_that_cannot_be_pruned_is_refused(name: str, method: str) -> None:
    make, arguments, message = BAD_MODELS[name]
    with pytest.raises(BrainsurgeonError, match=message):
        prune(make(), data(), 0.5, method, **QUICK, **arguments)


def test_a_refused_model_can_be_pruned_once_the_advice_is_followed() -> None:
    network = changed(lambda m: torch_prune.l1_unstructured(m[0], "weight", 0.5))  # type: ignore[index]
    torch_prune.remove(network[0], "weight")  # type: ignore[index]
    assert prune(network, data(), 0.6, "wf", **QUICK).pruned == 44
    masked = changed(lambda m: torch_prune.l1_unstructured(m[0], "weight", 0.5))  # type: ignore[index]
    assert list(prune(masked, data(), 0.5, "wf", exclude="0", **QUICK).masks) == ["2.weight"]


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    """The loss is finite, its slope is not."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return (output - output).pow(2).sum(1).sqrt().mean() + 1.0

    with pytest.raises(BrainsurgeonError, match=r"gradient of '0\.weight' is NaN or infinite"):
        prune(model(), data(), 0.5, "wf", loss, **QUICK)


def test_gradients_that_do_not_fit_are_refused_with_a_number_that_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 72 * 4 * 100)
    message = r"1000 gradients of 72 weights take .* give num_gradients=90 or fewer .* dtype=torch.bfloat16"
    with pytest.raises(BrainsurgeonError, match=message):
        prune(model(), data(), 0.5, "wf", num_gradients=1000, progress=False)
    prune(model(), data(), 0.5, "wf", num_gradients=90, progress=False)


def test_memory_that_cannot_be_known_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: None)
    memory.check_fits(10**9, 10**9, torch.float32, torch.device("cpu"))


def test_the_free_memory_of_this_machine_is_known() -> None:
    free = memory.available_bytes(torch.device("cpu"))
    assert free is not None
    assert free > 1 << 20


def test_a_method_that_needs_curvature_is_refused_where_none_was_taken() -> None:
    surgery = Surgery(model(), data(), curvature=False, **QUICK)
    assert surgery.prune(0.5, "mp").pruned == 36
    with pytest.raises(BrainsurgeonError, match="needs curvature"):
        surgery.prune(0.5, "wf")


def test_a_bad_call_leaves_the_model_as_it_was() -> None:
    network = model().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(BrainsurgeonError):
        prune(network, data(), 0.5, budget={"*": 0.1}, in_place=True, **QUICK)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_errors_are_value_errors() -> None:
    """So that callers need not know of this package to catch them."""
    with pytest.raises(ValueError, match="sparsity"):
        prune(model(), data(), 2.0)
