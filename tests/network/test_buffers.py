"""Expanded buffers get memory of their own, others stay the same tensors; what a forward pass counts is put back."""

import pytest
import torch
from torch import nn

import brainsurgeon
from brainsurgeon.network.buffers import buffers_kept, give_memory


def test_expanded_buffers_can_be_written_to_and_others_are_left_alone() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    model.register_buffer("mask", torch.arange(3.0).expand(4, 3))
    model.register_buffer("nothing", None)
    model.register_buffer("column", torch.zeros(5, 2)[:, :1].expand(5, 1))
    before = dict(model.named_buffers())
    assert give_memory(model) is model
    found = dict(model.named_buffers())
    assert found.keys() == before.keys()
    assert all(torch.equal(found[name], before[name]) for name in before)
    assert [name for name in found if found[name] is not before[name]] == ["mask"]
    model.get_buffer("mask")[0].zero_()
    assert model.get_buffer("mask")[1].tolist() == [0, 1, 2]


class Counting(nn.Module):
    """Counts its passes in place, follows a mean by new tensors, and makes a buffer when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("late", None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        hidden = torch.relu(self.first(inputs))
        self.passes += 1
        self.mean = 0.9 * self.mean + 0.1 * hidden.detach().mean(0)
        self.late = torch.ones(2)
        return self.last(hidden)


def _interrupted(model: nn.Module) -> None:
    with buffers_kept(model):
        model(torch.randn(5, 6))
        assert model.get_buffer("passes") == 1
        assert isinstance(model.late, torch.Tensor)
        raise ZeroDivisionError


def test_buffers_that_a_forward_pass_changes_are_put_back() -> None:
    model = Counting()
    model.register_buffer("shared", model.passes)
    before = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    with pytest.raises(ZeroDivisionError):
        _interrupted(model)
    assert model.late is None
    assert list(model.state_dict()) == ["passes", "mean", "shared", *list(Counting().state_dict())[2:]]
    for name, buffer in model.named_buffers(remove_duplicate=False):
        assert buffer is before.get(name, before["passes"])[0]
        assert torch.equal(buffer, before.get(name, before["passes"])[1])


def test_buffers_made_in_inference_mode_and_expanded_ones_are_put_back() -> None:
    with torch.inference_mode():
        model = Counting()
    model.register_buffer("wide", torch.zeros(1, 4).expand(3, 4))
    with buffers_kept(model):
        with torch.inference_mode():
            model(torch.randn(5, 6))
        assert model.passes == 1
    assert model.passes == 0
    assert model.mean.abs().sum() == 0
    assert model.get_buffer("wide").stride() == (0, 1)


@pytest.mark.parametrize("method", ["mp", "wf", "cbs", "layerwise", "staged", "gradual", "auto"])
def test_pruning_a_copy_leaves_the_buffers_of_the_given_model_alone(method: str) -> None:
    torch.manual_seed(0)
    model = Counting()
    inputs = torch.randn(240, 6)
    settings: dict[str, int] = {} if method in ("mp", "wf", "cbs", "layerwise") else {"max_gradients": 640}
    result = brainsurgeon.prune(model, (inputs, inputs.argmax(1) % 3), 0.5, method, progress=False, **settings)
    assert model.passes == 0
    assert model.mean.abs().sum() == 0
    assert model.late is None
    if method in ("mp", "wf", "cbs", "layerwise"):  # without training the copy's are as they were, too
        assert result.model.get_buffer("passes") == 0
