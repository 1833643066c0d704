"""Layers fitted anew give what the dense ones gave."""

from __future__ import annotations

import structures as s
import torch
from shrinking import CASES, QUICK, shrunk
from torch import nn

from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.structured.fit import Examination, damped, examine_readers, statistics_again
from brainsurgeon.structured.groups import Group
from brainsurgeon.structured.shrink import shrink


def test_the_fit_brings_the_outputs_nearer_and_the_loss_down() -> None:
    plain, fitted = (shrunk("residual", units=0.5, fit=fit) for fit in (False, True))
    assert plain.kept == fitted.kept
    inputs = CASES["residual"][1][0]
    with torch.no_grad():
        wanted = s.seeded(s.Residual)(inputs)
        errors = [float((one.model(inputs) - wanted).square().mean()) for one in (plain, fitted)]
    assert errors[1] < 0.7 * errors[0]


def test_a_unit_that_says_nothing_goes_first_and_costs_nothing() -> None:
    """Copies of another unit, and units that are constant, are made up for by the others and by the bias."""
    model, data = s.seeded(s.Perceptron), s.vectors(400)
    with torch.no_grad():
        model.first.weight[3], model.first.bias[3] = model.first.weight[0], model.first.bias[0]
        model.first.weight[5], model.first.bias[5] = 0.0, 2.0
    result = shrink(model, data, units=10 / 12, include="first", damping=1e-9, **QUICK)
    assert set(range(12)) - set(result.kept["first"]) in ({3, 5}, {0, 5})
    with torch.no_grad():
        torch.testing.assert_close(result.model(data[0]), model(data[0]), rtol=1e-4, atol=1e-4)


def test_moments_are_damped_on_their_inputs_and_not_on_the_constant() -> None:
    """A mean over columns: the constant's entry counts them."""
    columns = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    loss = BatchLoss(nn.Linear(2, 3).double(), "mse")
    layers = {layer.name: layer for layer in linear_maps(loss.model, ["weight"])}
    (moments,) = examine_readers(loss, layers, [(columns[:2].T, torch.zeros(4, 3).double())]).values()
    plain = columns @ columns.T / 4
    found = damped(moments, 0.1, 2)
    level = plain.diagonal()[:2].mean() * moments.damped(0.1)
    torch.testing.assert_close(found, plain + torch.diag(torch.tensor([level, level, 0.0], dtype=torch.float64)))


def test_statistics_are_those_of_all_samples_and_momenta_stay() -> None:
    """The mean of the batches' means; a last batch of one sample is passed over."""
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3), nn.Linear(2, 1)).double().eval()
    inputs, targets = torch.arange(18.0, dtype=torch.float64).view(9, 2), torch.zeros(9, 1).double()
    batches = [(inputs[k : k + 4], targets[k : k + 4]) for k in (0, 4, 8)]
    statistics_again(BatchLoss(model, "mse"), batches)
    torch.testing.assert_close(model[0].running_mean, inputs[:8].mean(0))
    torch.testing.assert_close(model[0].running_var, (inputs[:4].var(0) + inputs[4:8].var(0)) / 2)
    assert model[0].momentum == 0.3
    assert not model[0].training


def test_rows_that_cost_more_weigh_more_and_a_bias_adds_a_constant() -> None:
    """√(c_o/2 + c̄/2) of each row; the inputs of a unit are its columns."""
    loss = BatchLoss(nn.Sequential(nn.Identity(), nn.Linear(4, 3)).double(), "mse")
    layers = {layer.name: layer for layer in linear_maps(loss.model, ["1.weight"])}
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moments = examine_readers(loss, layers, [(inputs, torch.zeros(20, 3).double())])
    group = Group("a", 2, {("1.weight", 1): torch.tensor([[0, 2], [1, 3]])}, (), ("1.weight", "absent"), ())
    costs = {"1.weight": torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)}
    weights = loss.model[1].weight.detach()
    scaled = weights * torch.tensor([1.0, 1.5, 3.5], dtype=torch.float64).sqrt().unsqueeze(1)
    (plain,) = Examination(layers, moments, costs, {}, 0.1).readers(group, {"1.weight": 1})
    torch.testing.assert_close(plain.weights, scaled)
    assert plain.moments.shape == (4, 4)
    assert plain.columns.tolist() == [[0, 2], [1, 3]]
    (shifted,) = Examination(layers, moments, costs, {"1.weight": "1.bias"}, 0.1).readers(group, {"1.weight": 1})
    torch.testing.assert_close(shifted.weights, torch.cat([scaled, torch.zeros(3, 1).double()], 1))
    assert shifted.moments.shape == (5, 5)
