"""What the loss feels of an error in a layer's outputs: the squared slopes of each sample there."""

import pytest
import torch
from networks import BY_NAME, maps_of
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import without_cache
from brainsurgeon.network.output_costs import output_costs
from brainsurgeon.samples.batches import batch_size, cut

KINDS = ["sequential", "convolutional", "residual", "shared", "masked", "encoder", "llama", "gpt2", "bert"]


def one_by_one(name: str, model: nn.Module) -> dict[str, Tensor]:
    """Autograd at each output of each layer, a sample at a time, with every parameter in the graph."""
    network = BY_NAME[name]
    loss, data = BatchLoss(model.requires_grad_(), network.loss), network.data()
    totals: dict[str, Tensor] = {}
    for k in range(batch_size(data)):
        outputs: list[tuple[str, int, Tensor]] = []
        hooks = [
            layer.module.register_forward_hook(
                lambda module, _, out, layer=layer, into=outputs: into.append((layer.name, axis_of(module, out), out))
            )
            for layer in maps_of(model)
        ]
        value = loss(cut(data, slice(k, k + 1)))
        slopes = torch.autograd.grad(value, [output for *_, output in outputs])
        for hook in hooks:
            hook.remove()
        for (layer_name, axis, _), slope in zip(outputs, slopes, strict=True):
            square = slope.double().square().movedim(axis, 0).flatten(1).sum(1)
            totals[layer_name] = totals.get(layer_name, 0) + square
    return {layer: total / batch_size(data) for layer, total in totals.items()}


def axis_of(module: nn.Module, output: Tensor) -> int:
    return 1 if isinstance(module, nn.Conv1d | nn.Conv2d) else output.dim() - 1


@pytest.mark.parametrize("name", KINDS)
def test_costs_are_the_mean_squares_of_each_samples_slopes(name: str) -> None:
    """Whatever the batches; no parameter needs a gradient, and activations may write in place."""
    network = BY_NAME[name]
    model = network.model()
    layers = maps_of(model)
    with without_cache(model):
        expected = one_by_one(name, out_of_place(network.model()))
        model.requires_grad_(False)
        found = output_costs(BatchLoss(model, network.loss), layers, network.batches())
    assert found.keys() == expected.keys()
    for layer, costs in found.items():
        assert torch.allclose(costs, expected[layer], rtol=1e-3, atol=1e-12), layer
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def out_of_place(model: nn.Module) -> nn.Module:
    """The same network for autograd at the weights, which may not be written over."""
    for module in model.modules():
        if isinstance(module, nn.SiLU):
            module.inplace = False
    return model


def test_a_layer_that_is_not_called_has_no_cost() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "idle": nn.Linear(3, 2)})
    found = output_costs(lambda x: model["used"](x).square().mean(), maps_of(model), [torch.ones(2, 3)])
    assert list(found) == ["used.weight"]


def test_a_loss_without_a_slope_is_refused_and_leaves_no_hook() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(BrainsurgeonError, match="detached"):
        output_costs(lambda x: model(x).detach().mean(), maps_of(model), [torch.ones(2, 3)])
    assert not any(module._forward_hooks for module in model.modules())


def test_samples_that_go_through_a_layer_one_by_one_are_added_up() -> None:
    """Outputs of one dimension alone, as a network that chooses a sample's way has them."""
    model, x = nn.Sequential(nn.Linear(3, 2)), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    whole = output_costs(lambda batch: model(batch).square().sum(1).mean(), maps_of(model), [x])
    single = output_costs(lambda b: torch.stack([model(row).square().sum() for row in b]).mean(), maps_of(model), [x])
    assert torch.allclose(single["0.weight"], whole["0.weight"])
    assert single["0.weight"].shape == (2,)
