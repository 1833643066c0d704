"""Gradients of one batch are those of `backward`, and nothing of the model is changed by taking them."""

import pytest
import torch
from small import network, samples
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from brainsurgeon.network.autograd import loss_gradients
from brainsurgeon.network.loss import BatchLoss


class Recomputed(nn.Module):
    """Computes its inside again on the way back."""

    def __init__(self, reentrant: bool):
        super().__init__()
        self.first, self.inner, self.reentrant = nn.Linear(6, 6), network(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_part_that_is_computed_again_has_the_gradients_of_backward(reentrant: bool) -> None:
    """Frozen parameters stay frozen, and gradients that were there before stay there."""
    model = Recomputed(reentrant)
    names = [name for name, _ in model.named_parameters()]
    nn.functional.cross_entropy(model.inner(model.first(samples(8)[0])), samples(8)[1]).backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.inner[0].requires_grad_(False)
    with torch.no_grad():
        found = loss_gradients(BatchLoss(model, "cross_entropy"), names, samples(8))
    for name in names:
        torch.testing.assert_close(found[name], expected[name])
        assert model.get_parameter(name).grad is expected[name]
    assert [parameter.requires_grad for parameter in model.inner[0].parameters()] == [False, False]
    assert model.first.weight.requires_grad


def test_weights_that_a_batch_does_not_meet_have_zeros() -> None:
    """One of two, and all of them."""
    model = nn.ModuleDict({"used": nn.Linear(6, 3), "idle": nn.Linear(6, 3)})
    names, batch = ["used.weight", "idle.weight"], samples(4)

    def of_used(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return model["used"](batch[0]).square().mean()  # type: ignore[index]

    found = loss_gradients(BatchLoss(model, of_used), names, batch)
    assert found["used.weight"].any()
    assert torch.equal(found["idle.weight"], torch.zeros(3, 6))
    constant = loss_gradients(BatchLoss(model, lambda model, batch: batch[0].mean()), names, batch)
    assert not any(gradient.any() for gradient in constant.values())


def test_sparse_gradients_are_dense_when_they_are_returned() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 3))
    batch = (torch.tensor([[0, 2], [2, 4]]), torch.tensor([1, 0]))
    found = loss_gradients(BatchLoss(model, "cross_entropy"), ["0.weight"], batch)["0.weight"]
    assert found.layout == torch.strided
    assert found.any(1).tolist() == [True, False, True, False, True]
