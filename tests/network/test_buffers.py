"""Expanded buffers get memory of their own; all others stay the same tensors."""

import torch
from torch import nn

from brainsurgeon.network.buffers import give_memory


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
