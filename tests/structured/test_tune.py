"""A shrunk network learns from the dense one: its outputs and features, without a change of anything else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import structures as s
import torch
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.distillation import Lesson, Teacher
from brainsurgeon.structured.shrink import shrink

QUICK: dict[str, Any] = {"progress": False, "seconds": 0}
SHORT = {"epochs": 6, "learning_rate": 3e-3, "batch_size": 10, "progress": False}


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 5)).double().eval()


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return copy.deepcopy(model.state_dict())


def test_the_distance_from_the_dense_network_falls_and_nothing_else_changes() -> None:
    dense, data = network(), s.images()
    result = shrink(dense, data, units=0.5, fit=False, **QUICK)
    before = state(dense), state(result.model)
    tuned = result.finetune(dense, data, **SHORT)
    assert tuned.held_out_after < 0.9 * tuned.held_out_before
    for model, known in zip((dense, result.model), before, strict=True):
        assert all(torch.equal(value, known[name]) for name, value in model.state_dict().items())
        assert not any(module._forward_hooks for module in model.modules())
    assert not any(module._forward_hooks for module in tuned.model.modules())
    kept = ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert all(torch.equal(tuned.model.state_dict()[name], before[1][name]) for name in kept)
    assert not torch.equal(tuned.model[0].weight, result.model[0].weight)


def test_a_dense_network_in_training_mode_teaches_as_it_does_in_use() -> None:
    """It has no dropout and trained statistics for the student, whatever its mode, which stays as it was."""
    dense, data = nn.Sequential(*network(), nn.Dropout(0.5)).eval(), s.images()
    result = shrink(dense, data, units=0.5, fit=False, **QUICK)
    expected = result.finetune(dense, data, **{**SHORT, "epochs": 1})
    before = state(dense)
    found = result.finetune(dense.train(), data, **{**SHORT, "epochs": 1})
    assert all(module.training for module in dense.modules())
    assert all(torch.equal(value, before[name]) for name, value in dense.state_dict().items())
    assert found.held_out_before == pytest.approx(expected.held_out_before, rel=1e-9)


def test_features_are_compared_in_the_units_that_stayed() -> None:
    dense, batch = network(), s.images()
    result = shrink(dense, batch, units=0.5, fit=False, **QUICK)
    kept = torch.tensor(result.kept["0"])
    teacher = Teacher(dense, "cross_entropy", Lesson(share=1.0, features=1.0), batch, {"1": kept})
    alone = Teacher(dense, "cross_entropy", Lesson(share=1.0), batch)
    values = []
    for one in (teacher, alone):
        with one.watching(result.model) as value, torch.no_grad():
            values.append(value(batch, lambda: result.model(batch[0])))
    assert values[0] == pytest.approx(float(values[1]), abs=1e-6)  # what stayed of the first layer is what it was
    assert float(values[1]) > 0


@pytest.mark.parametrize("build", [s.Residual, s.Separable])
def test_every_structure_can_be_taught(build: type[nn.Module]) -> None:
    dense = s.seeded(build)
    result = shrink(dense, s.images(), units=0.5, **QUICK)
    tuned = result.finetune(dense, s.images(), **{**SHORT, "epochs": 1})
    assert tuned.settings["statistics"] == "kept"
    assert [p.shape for p in tuned.model.parameters()] == [p.shape for p in result.model.parameters()]


def test_attention_that_was_replaced_is_taught_by_the_outputs() -> None:
    dense, data = s.seeded(s.Encoder), s.sequences(width=8)
    result = shrink(dense, data, units=0.5, **QUICK)
    assert len(result.finetune(dense, data, **{**SHORT, "epochs": 1}).epochs) == 1


def test_with_a_loss_that_hides_the_outputs_these_are_matched_all_the_same() -> None:
    dense, data = network(), s.images()
    result = shrink(dense, data, units=0.5, fit=False, **QUICK)

    def own(model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    found = [result.finetune(dense, data, loss, **SHORT) for loss in (own, "match")]
    assert found[0].held_out_after == found[1].held_out_after
    assert found[0].held_out_after < found[0].held_out_before
    for given, tuned in ((dense, network()), (result.model, copy.deepcopy(result.model))):
        assert all(torch.equal(a, b) for a, b in zip(given.parameters(), tuned.parameters(), strict=True))


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(8), nn.BatchNorm2d(8, affine=False)], ids=["instance", "batch"])
def test_normalisations_without_weights_are_compared_in_the_units_they_have(norm: nn.Module) -> None:
    dense, data = network(), s.images()
    dense[1] = norm.double().eval()
    result = shrink(dense, data, units=0.5, **QUICK)
    assert result.model[1].num_features == 4
    tuned = result.finetune(dense, data, **{**SHORT, "epochs": 1})
    assert tuned.model[1].num_features == 4


def test_it_trains_under_inference_mode_and_refuses_what_it_does_not_know() -> None:
    dense, data = network(), s.images()
    result = shrink(dense, data, units=0.5, fit=False, **QUICK)
    expected = result.finetune(dense, data, **{**SHORT, "epochs": 1})
    with torch.inference_mode():
        found = result.finetune(dense, data, **{**SHORT, "epochs": 1})
    assert found.held_out_after == expected.held_out_after
    with pytest.raises(BrainsurgeonError, match="no setting 'epoch'"):
        result.finetune(dense, data, epoch=1)
