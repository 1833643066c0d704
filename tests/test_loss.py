"""One loss for every calling convention."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.loss import LOSSES, BatchLoss, LossLike, check_loss
from cases import CASES, Case, every_case


class OwnLoss(nn.Module):
    """A model that gives its own loss, in a dict or as an attribute."""

    def __init__(self, wrap: type | None = dict):
        super().__init__()
        self.layer, self.wrap = nn.Linear(3, 1), wrap

    def forward(self, x: Tensor, labels: Tensor) -> object:
        loss = F.mse_loss(self.layer(x).squeeze(1), labels)
        return {"loss": loss} if self.wrap is dict else type("Output", (), {"loss": loss})()


def pair() -> tuple[Tensor, Tensor]:
    return torch.ones(4, 6), torch.tensor([0, 1, 2, 0])


@every_case
def test_every_case_has_one_finite_loss_that_is_the_same_twice(case: Case) -> None:
    batch_loss = BatchLoss(case.model().eval(), case.loss)
    value = batch_loss(case.data())
    assert value.shape == ()
    assert bool(torch.isfinite(value))
    check_loss(batch_loss, case.data())


def test_a_name_a_function_of_the_output_and_one_of_the_model_mean_the_same() -> None:
    model, data = CASES["linear"].model(), CASES["linear"].data()

    def of_model(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    losses: list[LossLike] = [
        "cross_entropy",
        F.cross_entropy,
        nn.CrossEntropyLoss(),
        lambda out, y: F.cross_entropy(out, y),
        of_model,
    ]
    values = [BatchLoss(model, loss)(data).item() for loss in losses]
    assert values == [values[0]] * len(losses)


@pytest.mark.parametrize("wrap", [dict, None])
def test_a_model_may_bring_its_own_loss(wrap: type | None) -> None:
    model = OwnLoss(wrap)
    batch = {"x": torch.ones(4, 3), "labels": torch.zeros(4)}
    expected = model.layer(torch.ones(4, 3)).square().mean()
    assert BatchLoss(model, "model")(batch).item() == pytest.approx(expected.item())


def test_a_model_without_a_loss_of_its_own_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match=r"needs a model whose output has a \.loss"):
        BatchLoss(nn.Linear(3, 1), "model")(torch.ones(4, 3))


@pytest.mark.parametrize("name", LOSSES)
def test_every_named_loss_is_a_mean_over_the_samples(name: str) -> None:
    """Twice the same batch has the loss of the batch: what makes gradient rows comparable."""
    model = nn.Sequential(nn.Linear(6, 3), nn.LogSoftmax(1))
    inputs, labels = pair()
    targets = labels if name in {"cross_entropy", "nll"} else torch.rand(4, 3)
    batch_loss = BatchLoss(model, name)
    once, twice = (
        batch_loss((inputs, targets)),
        batch_loss((inputs.repeat(2, 1), torch.cat([targets, targets]))),
    )
    assert once.item() == pytest.approx(twice.item(), rel=1e-6)


def test_a_loss_that_is_not_one_number_is_refused() -> None:
    model = nn.Linear(6, 3)
    with pytest.raises(BrainsurgeonError, match=r"must be one number .* got \(4,\)"):
        BatchLoss(model, nn.CrossEntropyLoss(reduction="none"))(pair())
    with pytest.raises(BrainsurgeonError, match=r"must be one number .* got float"):
        BatchLoss(model, lambda output, target: 1.0)(pair())  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("batch", [torch.ones(4, 6), {"x": torch.ones(4, 6)}, (torch.ones(4, 6),)])
def test_a_loss_of_the_output_needs_pairs(batch: object) -> None:
    with pytest.raises(BrainsurgeonError, match=r"a batch must be \(inputs, targets\)"):
        BatchLoss(nn.Linear(6, 3), "cross_entropy")(batch)


def test_unknown_losses_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        BrainsurgeonError, match=r'unknown loss .crossentropy.: give one of .*"cross_entropy"'
    ):
        BatchLoss(nn.Linear(6, 3), "crossentropy")
    with pytest.raises(BrainsurgeonError, match="must be a name or a callable"):
        BatchLoss(nn.Linear(6, 3), 3)  # type: ignore[arg-type]


def test_a_loss_that_changes_from_call_to_call_is_refused() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(super().forward(x), 0.5, training=True)

    with pytest.raises(BrainsurgeonError, match="not deterministic"):
        check_loss(BatchLoss(Noisy(6, 3), "cross_entropy"), pair())


def test_a_loss_that_is_not_finite_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="loss of the model on the first batch is nan"):
        check_loss(BatchLoss(nn.Linear(6, 3), "cross_entropy"), (torch.full((4, 6), torch.nan), pair()[1]))
