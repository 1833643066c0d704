"""Batch-norm statistics taken again: those of the samples, and nothing else changes."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from brainsurgeon import prune
from brainsurgeon.loss import BatchLoss
from brainsurgeon.recalibrate import recalibrate_norms
from brainsurgeon.schedule import Stages
from cases import CASES, every_device, seeded

CASE = CASES["batch_norm_dropout"]


def images(count: int = 40, seed: int = 5) -> tuple[Tensor, Tensor]:
    return seeded(lambda: (3 + 2 * torch.randn(count, 1, 3, 3), torch.randint(3, (count,))), seed)


def recalibrated(model: nn.Module, batches: Any, loss: Any = "cross_entropy", device: str = "cpu") -> int:
    return recalibrate_norms(BatchLoss(model, loss), batches, device)


def by_hand(model: nn.Module, batches: list[Any]) -> tuple[Tensor, Tensor]:
    """The mean and the (unbiased) variance of what goes into the norm, averaged over batches."""
    outputs = [model[0](x).transpose(0, 1).flatten(1) for x, _ in batches]  # type: ignore[index]
    means = torch.stack([out.mean(1) for out in outputs]).mean(0)
    return means, torch.stack([out.var(1) for out in outputs]).mean(0)


@every_device
def test_statistics_are_those_of_the_samples(device: str) -> None:
    model, batches = CASE.model(), [images(64), images(64, seed=6)]
    assert recalibrated(model, [tuple(t.to(device) for t in batch) for batch in batches], device=device) == 1
    mean, variance = by_hand(model, batches)
    torch.testing.assert_close(model[1].running_mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model[1].running_var, variance, rtol=1e-4, atol=1e-5)
    assert model[1].running_mean.device.type == "cpu"


def test_what_the_statistics_were_before_does_not_matter() -> None:
    one, other = CASE.model(), CASE.model()
    other[1].running_mean.fill_(99.0)
    other[1].running_var.fill_(0.5)
    for model in (one, other):
        recalibrated(model, [images()])
    assert torch.equal(one[1].running_mean, other[1].running_mean)
    assert torch.equal(one[1].running_var, other[1].running_var)


def test_modes_momenta_and_weights_stay() -> None:
    model = CASE.model()
    model[1].momentum = 0.3
    model.train()
    model[3].eval()
    before = copy.deepcopy(dict(model.named_parameters()))
    modes = [module.training for module in model.modules()]
    recalibrated(model, [images()])
    assert [module.training for module in model.modules()] == modes
    assert model[1].momentum == 0.3
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_and_momenta_stay_where_a_batch_is_bad() -> None:
    model = CASE.model().eval()
    with pytest.raises(RuntimeError):
        recalibrated(model, [(torch.ones(2, 99), torch.ones(2))])
    assert not any(module.training for module in model.modules())
    assert model[1].momentum == 0.1


def test_dropout_is_off_while_statistics_are_taken() -> None:
    """The second norm sees what dropout lets through: the same on every call only where it is off."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))

    model = seeded(build, 0).train()
    data = seeded(lambda: (torch.randn(30, 4), torch.randint(3, (30,))), 1)
    assert recalibrated(model, [data]) == 2
    first = model[3].running_mean.clone()
    recalibrated(model, [data])
    assert torch.equal(model[3].running_mean, first)


def test_a_model_without_batch_norm_is_left_alone() -> None:
    model = CASES["linear"].model().train()
    before = copy.deepcopy(model.state_dict())
    assert recalibrated(model, [CASES["linear"].data()]) == 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    norm = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False))
    assert recalibrated(norm, [CASES["linear"].data()]) == 0


def test_batches_of_one_sample_are_joined_and_a_last_one_left_out() -> None:
    """One sample has no variance, and batch norm refuses it."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))

    data = seeded(lambda: (torch.randn(65, 4), torch.randint(3, (65,))), 1)
    model, other = seeded(build, 0), seeded(build, 0)
    recalibrated(model, [(data[0][k : k + 1], data[1][k : k + 1]) for k in range(65)])
    recalibrated(other, [(data[0][:64], data[1][:64])])
    assert torch.equal(model[1].running_mean, other[1].running_mean)


def test_batches_go_into_the_model_by_the_way_of_the_loss() -> None:
    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])

    model, other = CASE.model(), CASE.model()
    pixels, label = images()
    recalibrated(model, [{"pixels": pixels, "label": label}], loss)
    recalibrated(other, [(pixels, label)])
    assert torch.equal(model[1].running_mean, other[1].running_mean)


@pytest.mark.parametrize("recalibrate", [False, True])
def test_a_run_in_stages_recalibrates_where_it_is_asked_to(recalibrate: bool) -> None:
    model = CASE.model().train()
    settings: dict[str, Any] = {"schedule": Stages(1, refits=0), "curvature": "gram"}
    result = prune(model, images(), 0.5, "wf-s+cbs-u", recalibrate=recalibrate, **settings)
    changed = not torch.equal(result.model[1].running_mean, model[1].running_mean)  # type: ignore[index]
    assert changed == recalibrate
    assert result.model.training
    assert torch.equal(model[1].running_mean, CASE.model()[1].running_mean)
