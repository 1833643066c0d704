"""What a pass keeps for the way back: counted once by storage, without the weights."""

import torch
from torch import nn

import brainsurgeon
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.saved import kept_by, saved


def test_activations_are_counted_once_and_weights_are_not() -> None:
    model, inputs = nn.Linear(6, 5), torch.randn(3, 6)
    with saved(model) as seen:
        outputs = torch.tanh(model(inputs))
    assert sum(seen.values()) == inputs.nbytes + outputs.nbytes


def test_of_a_part_of_the_data_the_part_is_counted() -> None:
    model, everything = nn.Linear(6, 5), torch.randn(100, 6)
    with saved(model) as seen:
        model(everything[:3])
    assert sum(seen.values()) == everything[:3].nbytes


def test_a_frozen_model_tells_what_its_pass_would_keep_and_stays_frozen() -> None:
    model, batch = (
        nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3)),
        (torch.randn(4, 6), torch.arange(4) % 3),
    )
    kept = kept_by(BatchLoss(model, "cross_entropy"), batch)
    frozen = model.requires_grad_(False)
    assert kept_by(BatchLoss(frozen, "cross_entropy"), batch) == kept > 4 * 50 * 4
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_a_loss_that_takes_gradients_itself_can_be_measured_and_pruned() -> None:
    model, inputs = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)), torch.randn(120, 6)

    def residual(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            places = batch.detach().requires_grad_()
            values = model(places)
            (slopes,) = torch.autograd.grad(values.sum(), places, create_graph=True)
            return (slopes.sum(1, keepdim=True) + values).square().mean()

    assert kept_by(BatchLoss(model, residual), inputs) > inputs.nbytes
    for method in ("mp", "wf", "cbs", "layerwise"):
        result = brainsurgeon.prune(model, inputs, 0.5, method, residual, progress=False)
        assert result.pruned == 112
    result = brainsurgeon.prune(model, inputs, 0.5, "auto", residual, max_gradients=2000, progress=False)
    assert result.pruned == 112
