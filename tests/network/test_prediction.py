"""What outputs say of labels: against autograd at every label, and against the Hessian of PyTorch's own losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import hessian
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.prediction import BERNOULLI, CLASSES, GAUSSIAN, Prediction, prediction_of

Loss = Callable[[Tensor, Tensor], Tensor]
LABEL: dict[str, tuple[Loss, tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "classes": (F.cross_entropy, (4,), lambda f: torch.zeros(len(f), dtype=torch.long)),
    "classes at places": (F.cross_entropy, (3, 2), lambda f: torch.ones(len(f), 2, dtype=torch.long)),
    "classes in a picture": (F.cross_entropy, (2, 2, 2), lambda f: torch.ones(len(f), 2, 2, dtype=torch.long)),
    "one yes or no": (F.binary_cross_entropy_with_logits, (), torch.zeros_like),
    "yes and no": (F.binary_cross_entropy_with_logits, (3,), torch.ones_like),
    "a number": (F.mse_loss, (), torch.zeros_like),
    "numbers": (F.mse_loss, (2, 3), torch.zeros_like),
}
every_loss = pytest.mark.parametrize("name", LABEL)


def outputs_of(name: str, samples: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(samples, *LABEL[name][1], generator=generator, dtype=torch.float64)


def squares(columns: Tensor) -> Tensor:
    """Σ_r s_r s_rᵀ of each sample."""
    flat = columns.reshape(*columns.shape[:2], -1)
    return torch.einsum("nri,nrj->nij", flat, flat)


def curvature(name: str, outputs: Tensor) -> Tensor:
    """∇²_f of the loss of each sample, by autograd; it is the same at every label."""
    loss, shape, label = LABEL[name]
    size = math.prod(shape)
    found = [hessian(loss)(f.unsqueeze(0), label(f.unsqueeze(0))).reshape(size, size) for f in outputs]
    return torch.stack(found)


@every_loss
def test_the_columns_are_a_square_root_of_the_curvature_of_the_loss(name: str) -> None:
    loss, _, label = LABEL[name]
    prediction, outputs = prediction_of(loss), outputs_of(name)
    share = prediction.share(outputs, label(outputs))
    found = squares(prediction.root(outputs) * share.unsqueeze(1))
    torch.testing.assert_close(found, curvature(name, outputs))
    assert found.abs().sum() > 0.1


@every_loss
def test_the_slopes_of_drawn_labels_square_to_the_curvature_on_average(name: str) -> None:
    """In 20,000 draws, mean and mean square come within five standard errors, and those are small."""
    loss, _, label = LABEL[name]
    prediction, count = prediction_of(loss), 20_000
    outputs = outputs_of(name, 1).expand(count, *LABEL[name][1]).contiguous()
    drawn = prediction.draw(outputs, torch.Generator().manual_seed(0))
    slopes = (drawn * prediction.share(outputs, label(outputs))).reshape(count, -1)
    each = torch.einsum("ni,nj->nij", slopes, slopes)
    error = 5 * each.std(0) / math.sqrt(count) + 1e-12
    assert ((each.mean(0) - curvature(name, outputs[:1])[0]).abs() <= error).all()
    assert (slopes.mean(0).abs() <= 5 * slopes.std(0) / math.sqrt(count) + 1e-12).all()
    assert error.max() < 0.2


@pytest.mark.parametrize("places", [1, 3])
def test_every_drawn_class_gives_the_gradient_at_that_class(places: int) -> None:
    outputs = torch.randn(200, 4, places, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = Prediction(CLASSES).draw(outputs, torch.Generator().manual_seed(1))
    labels = drawn.argmin(1)  # p − e_y is negative at y alone
    outputs.requires_grad_()
    (expected,) = torch.autograd.grad(F.cross_entropy(outputs, labels, reduction="sum"), outputs)
    torch.testing.assert_close(drawn, expected)
    assert set(labels.flatten().tolist()) == {0, 1, 2, 3}


def test_log_probabilities_say_what_their_logits_say() -> None:
    """Cross-entropy and nll share one rule: the softmax of log-probabilities is themselves."""
    outputs = outputs_of("classes")
    of_logits, of_logs = (Prediction(CLASSES).root(f) for f in (outputs, outputs.log_softmax(1)))
    torch.testing.assert_close(of_logits, of_logs)


def test_certain_labels_are_drawn_as_they_are() -> None:
    outputs = torch.full((50, 3), -200.0)
    outputs[:, 1] = 200.0
    assert not Prediction(CLASSES).draw(outputs, torch.Generator().manual_seed(0)).any()
    assert not Prediction(BERNOULLI).draw(outputs, torch.Generator().manual_seed(0)).any()


@pytest.mark.parametrize("kind", [CLASSES, BERNOULLI, GAUSSIAN])
def test_a_seed_makes_the_draws(kind: str) -> None:
    outputs = torch.zeros(40, 3)
    first, again, other = (Prediction(kind).draw(outputs, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_places_that_the_loss_leaves_out_have_no_slope_and_no_part_in_the_mean() -> None:
    outputs = torch.zeros(3, 2, 4, dtype=torch.float64)
    targets = torch.tensor([[0, 1, 0, 1], [0, -100, -100, 1], [-100] * 4])
    share = prediction_of("cross_entropy").share(outputs, targets)
    expected = torch.tensor([[0.5] * 4, [0.5**0.5, 0, 0, 0.5**0.5], [0.0] * 4], dtype=torch.float64)
    torch.testing.assert_close(share, expected.unsqueeze(1).expand(3, 2, 4))
    named = prediction_of(nn.CrossEntropyLoss(ignore_index=1)).share(outputs, targets)
    assert (named[0, 0] > 0).tolist() == [True, False, True, False]


def test_targets_that_are_probabilities_leave_nothing_out() -> None:
    outputs = torch.zeros(3, 4)
    assert (prediction_of("cross_entropy").share(outputs, torch.full((3, 4), -100.0)) == 1).all()


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        ("nll", CLASSES),
        (F.nll_loss, CLASSES),
        (nn.NLLLoss(), CLASSES),
        (nn.CrossEntropyLoss(), CLASSES),
        ("bce_with_logits", BERNOULLI),
        (nn.BCEWithLogitsLoss(), BERNOULLI),
        ("mse", GAUSSIAN),
        (nn.MSELoss(), GAUSSIAN),
    ],
)
def test_names_functions_and_modules_are_known(loss: Any, kind: str) -> None:
    assert prediction_of(loss).kind == kind


class Focal(nn.CrossEntropyLoss):
    """Another loss that derives from a known one."""


@pytest.mark.parametrize(
    "loss",
    [
        "l1",
        "huber",
        "model",
        F.l1_loss,
        nn.CrossEntropyLoss(weight=torch.ones(3)),
        nn.MSELoss(reduction="sum"),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.BCEWithLogitsLoss(pos_weight=torch.ones(2)),
        Focal(),
        lambda output, target: F.cross_entropy(output, target),
        lambda model, batch: model(batch).sum(),
    ],
)
def test_a_loss_that_stands_for_no_known_distribution_is_refused(loss: Any) -> None:
    with pytest.raises(BrainsurgeonError, match=r'give the loss as "cross_entropy".* take fisher="empirical"'):
        prediction_of(loss)
