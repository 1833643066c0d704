"""The graph of one call, with the names of what is stored."""

from __future__ import annotations

import pytest
import structures as s
import torch
from shrinking import QUICK

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.structured.shrink import shrink
from brainsurgeon.structured.tracing import Call, call_of, needed, trace


def test_a_network_that_cannot_be_traced_is_refused_by_name() -> None:
    class Branching(s.Perceptron):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if float(x.sum()) > 0 else super().forward(-x)

    with pytest.raises(BrainsurgeonError, match="cannot trace Branching"):
        shrink(s.seeded(Branching), s.vectors(), units=0.5, **QUICK)


def test_a_call_is_what_the_loss_calls_its_model_with() -> None:
    """Run again, it gives the same; the hook that noted it is gone."""
    model = s.seeded(s.Perceptron)
    call = call_of(BatchLoss(model, "cross_entropy"), s.vectors(4))
    assert torch.equal(call.args[0], s.vectors(4)[0])
    torch.testing.assert_close(call.run(model), model(s.vectors(4)[0]).detach())
    assert not call.run(model).requires_grad
    assert not model._forward_pre_hooks
    by_name = call_of(BatchLoss(model, lambda model, batch: model(x=batch[0]).mean()), s.vectors(4))
    assert (by_name.args, list(by_name.kwargs)) == ((), ["x"])
    with pytest.raises(BrainsurgeonError, match="the loss does not call the model"):
        call_of(BatchLoss(model, lambda model, batch: batch[0].mean()), s.vectors(4))


def test_stored_tensors_have_the_first_of_their_names() -> None:
    model = s.seeded(s.Tied)
    traced = trace(model, Call((s.vectors(2)[0],), {}))
    assert sorted(set(traced.stored.values())) == [
        "first.bias", "first.weight", "head.bias", "head.weight", "second.bias", "third.bias", "third.weight",
    ]  # fmt: skip


def test_only_what_the_outputs_depend_on_is_needed() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    wanted, idle = graph.call_function(torch.relu, (x,)), graph.call_function(torch.tanh, (x,))
    graph.output(graph.call_function(torch.neg, (wanted,)))
    names = [node.name for node in needed(graph)]
    assert names == ["x", "relu", "neg", "output"]
    assert idle.name not in names
