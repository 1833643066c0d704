"""Layer by layer: exact least squares on the kept weights, in the order of the forward pass."""

import copy
from typing import Any

import pytest
import torch
from cases import CASES, seeded
from torch import Tensor, nn
from toys import Conv1D

from brainsurgeon.network.inputs import collect_cross_moments, order_of_calls
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.staged.reconstruct import reconstruct


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def rebuilt(model: nn.Module, x: Tensor, share: float = 0.5, damping: float = 1e-9) -> tuple[Any, ...]:
    """Prune a random share, fit anew, and return (live, dense, values, pruned, weights)."""
    live, dense = BatchLoss(copy.deepcopy(model), squared), BatchLoss(model, squared)
    weights = find_weights(model)
    trained = weights.flatten(model)
    pruned = seeded(lambda: torch.rand(weights.size), 3) < share
    target = model(x).detach()
    batches = [(x[:20], target[:20]), (x[20:], target[20:])]
    values = reconstruct(live, dense, weights, batches, trained.masked_fill(pruned, 0.0), pruned, damping)
    return live, dense, values, pruned, weights


def test_a_single_layer_is_the_least_squares_fit_on_its_kept_weights() -> None:
    model = seeded(lambda: nn.Linear(8, 5).double(), 0)
    x = seeded(lambda: torch.randn(60, 8, dtype=torch.float64), 1)
    _, _, values, pruned, _ = rebuilt(model, x)
    wanted = x @ model.weight.detach().T
    for row, gone, target in zip(values.view(5, 8), pruned.view(5, 8), wanted.T, strict=True):
        best = torch.linalg.lstsq(x[:, ~gone], target.unsqueeze(1)).solution.squeeze(1)
        assert torch.allclose(row[~gone], best, atol=1e-6)
        assert not row[gone].any()


def test_each_layer_sees_what_the_fitted_layers_before_it_give() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)).double(), 0)
    x = seeded(lambda: torch.randn(80, 6, dtype=torch.float64), 1)
    _, _, values, pruned, weights = rebuilt(model, x)
    first, second = (values[layer.columns].view(layer.shape) for layer in weights.layers)
    hidden = torch.relu(x @ first.T + model[0].bias.detach())
    wanted = model(x).detach() - model[2].bias.detach()
    gone = pruned[weights.layers[1].columns].view(second.shape)
    for row, out, target in zip(second, gone, wanted.T, strict=True):
        best = torch.linalg.lstsq(hidden[:, ~out], target.unsqueeze(1)).solution.squeeze(1)
        assert torch.allclose(row[~out], best, atol=1e-5)


MAPS = {
    "convolution": (lambda: nn.Conv2d(3, 6, 3, padding=1, stride=2), (60, 3, 7, 7)),
    "grouped": (lambda: nn.Conv2d(4, 8, 3, groups=2), (60, 4, 6, 6)),
    "transposed": (lambda: Conv1D(7, 5), (60, 5)),
}


@pytest.mark.parametrize("kind", MAPS)
def test_every_plain_linear_map_comes_nearer_to_the_dense_outputs(kind: str) -> None:
    build, shape = MAPS[kind]
    model = seeded(build, 0)
    # Inputs that know of one another: what is gone can be made up for.
    x = seeded(lambda: torch.randn(shape[0], 1, *shape[2:]) + 0.3 * torch.randn(shape), 1)
    live, _, values, pruned, weights = rebuilt(model, x, 0.4, 1e-6)
    after = (live.model(x) - model(x)).square().mean()
    weights.assign(live.model, weights.flatten(model).masked_fill(pruned, 0.0))
    before = (live.model(x) - model(x)).square().mean()
    assert float(after) < 0.8 * float(before)
    assert not values[pruned].any()


def test_a_map_that_is_used_twice_is_fitted_on_both_inputs() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(6, 6, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(torch.tanh(self.map(x)))

    model = seeded(lambda: Twice().double(), 0)
    x = seeded(lambda: torch.randn(50, 6, dtype=torch.float64), 1)
    loss, weights = BatchLoss(model, squared), find_weights(model)
    (layer, calls), *others = order_of_calls(loss, weights, (x, x)).items()
    moments = collect_cross_moments(loss, loss, layer, [(x, x)], calls)
    second = torch.tanh(model.map(x)).detach()
    assert (calls, others, moments.columns) == (2, [], 100)
    assert torch.allclose(moments.matrix[0], (x.T @ x + second.T @ second) / 50)
    assert torch.allclose(moments.cross, moments.matrix)


def test_layers_of_another_kind_stay_as_they_are() -> None:
    case = CASES["embedding"]
    model = case.model()
    weights = find_weights(model)
    loss = BatchLoss(model, case.loss)
    values = weights.flatten(model)
    named = {layer.name for layer in order_of_calls(loss, weights, case.data())}
    new = reconstruct(loss, loss, weights, [case.data()], values, torch.zeros_like(values, dtype=torch.bool), 0.1)
    for layer in weights.layers:
        if layer.name not in named:
            assert torch.equal(new[layer.columns], values[layer.columns])
    assert torch.allclose(new, values, atol=1e-5)  # nothing is gone, so nothing is to be made up for
