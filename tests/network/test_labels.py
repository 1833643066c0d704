"""The Fisher matrix at sampled labels and at all labels, against dense matrices in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from cases import CASES, SAMPLES, TABLE, Case, every_device, seeded
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn import functional as F  # noqa: N812

from brainsurgeon import BrainsurgeonError, Surgery, prune
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.network import labels as module
from brainsurgeon.network.gradients import collect_gradients
from brainsurgeon.network.labels import relabel
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.one_shot import OneShot

QUICK: dict[str, Any] = {"num_gradients": 36, "damping": 1e-2, "progress": False, "num_draws": 6}
OF_OUTPUTS = [case for case in TABLE if isinstance(case.loss, str)]


def columns(fisher: str, model: nn.Module, loss: Any, data: Any, rows: int, group: int = 1, seed: int = 0) -> Tensor:
    """Gᵀ in float64, from the gradients in the model's own type."""
    generator, batch_loss = torch.Generator().manual_seed(seed), BatchLoss(model.eval(), loss)
    found = relabel(fisher, batch_loss, loss, iter([data]), rows, generator)
    gradients = collect_gradients(
        found.batch_loss, find_weights(model), found.batches, found.count, group, torch.float64
    )
    assert gradients.rows == found.count
    return gradients.columns


def matrix(columns: Tensor) -> Tensor:
    """GᵀG/K, as `Fisher` has it."""
    return columns @ columns.T / columns.shape[1]


def jacobian(model: nn.Module, inputs: Any) -> Tensor:
    """The derivative of one sample's outputs by the prunable weights, R×N."""
    parameters = {name: model.get_parameter(name).detach() for name in find_weights(model).names}

    def outputs(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(model, parameters, inputs if isinstance(inputs, tuple) else (inputs,))

    parts = jacrev(outputs)(parameters)
    out = outputs(parameters).numel()
    return torch.cat([parts[name].reshape(out, -1) for name in parameters], 1)


def linear(outputs: int = 3, seed: int = 0) -> nn.Module:
    return seeded(lambda: nn.Linear(4, outputs).double(), seed)


def inputs(samples: int = 10) -> Tensor:
    return torch.randn(samples, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def of_every_label(model: nn.Module, x: Tensor) -> Tensor:
    """Σ_c p_c ∇log p_c ∇log p_cᵀ, averaged over the samples, label by label."""
    weights, total = list(find_weights(model).names), 0.0
    for one in x:
        logs = model(one.unsqueeze(0)).log_softmax(1)[0]
        for value in logs:
            parts = torch.autograd.grad(value, [model.get_parameter(name) for name in weights], retain_graph=True)
            row = torch.cat([part.flatten() for part in parts])
            total = total + float(value.detach().exp()) * torch.outer(row, row)
    return total / len(x)  # type: ignore[return-value]


def test_the_exact_matrix_is_the_expectation_over_every_label_and_the_gauss_newton_matrix() -> None:
    model, x = linear(), inputs()
    found = matrix(columns("exact", model, "cross_entropy", (x, torch.zeros(10, dtype=torch.long)), 30))
    newton = 0.0
    for one in x:
        J, p = jacobian(model, one), model(one).softmax(0).detach()
        newton = newton + J.T @ (torch.diag(p) - torch.outer(p, p)) @ J / len(x)
    torch.testing.assert_close(found, of_every_label(model, x))
    torch.testing.assert_close(found, newton)


def test_the_exact_matrix_of_a_deep_network_is_the_expectation_over_every_label() -> None:
    model, x = (
        seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double(), 1),
        inputs(),
    )
    found = matrix(columns("exact", model, "cross_entropy", (x, torch.zeros(10, dtype=torch.long)), 30))
    torch.testing.assert_close(found, of_every_label(model, x))


@pytest.mark.parametrize("loss", ["nll", "cross_entropy"])
def test_log_probabilities_have_the_matrix_of_their_logits(loss: str) -> None:
    model, data = linear(), (inputs(), torch.zeros(10, dtype=torch.long))
    logs = nn.Sequential(model, nn.LogSoftmax(1))
    expected = matrix(columns("exact", model, "cross_entropy", data, 30))
    torch.testing.assert_close(matrix(columns("exact", logs, loss, data, 30)), expected)


@pytest.mark.parametrize(
    ("loss", "slope"), [("mse", lambda f: 2.0 + 0 * f), ("bce_with_logits", lambda f: f.sigmoid() * (1 - f.sigmoid()))]
)
def test_the_exact_matrix_of_numbers_is_that_of_the_mean_loss(loss: str, slope: Any) -> None:
    """JᵀΛJ with Λ = 2/D for the mean square of D numbers, and p(1 − p)/D for D answers of yes or no."""
    model, x = linear(), inputs()
    found = matrix(columns("exact", model, loss, (x, torch.zeros(10, 3, dtype=torch.float64)), 30))
    rows = [jacobian(model, one) for one in x]
    scales = [slope(model(one).detach()) / 3 for one in x]
    expected = sum(J.T @ torch.diag(s) @ J for J, s in zip(rows, scales, strict=True)) / len(x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("loss", ["cross_entropy", "bce_with_logits", "mse"])
def test_the_sampled_matrix_comes_to_the_exact_one(loss: str, group: int) -> None:
    """Within five standard errors of 8,000 rows, whether a row is of one sample or of four."""
    model, x = linear(), inputs(16)
    targets = torch.zeros(16, dtype=torch.long) if loss == "cross_entropy" else torch.zeros(16, 3).double()
    exact = matrix(columns("exact", model, loss, (x, targets), 48))
    repeats = 8000 * group // 16
    many = (x.repeat(repeats, 1), targets.repeat(repeats, *[1] * (targets.dim() - 1)))
    drawn = columns("sampled", model, loss, many, 8000, group)
    each = torch.einsum("ik,jk->ijk", drawn, drawn)
    error = 5 * each.std(2) / math.sqrt(8000)
    assert ((matrix(drawn) - exact).abs() <= error).all()
    assert error.max() < 0.25 * exact.diagonal().max()


class Places(nn.Module):
    """Scores of three classes at every place of a sequence, N×C×T."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).transpose(1, 2)


def test_places_that_are_left_out_are_left_out_of_both() -> None:
    """A sequence with places left out has the matrices of the one without those places."""
    model = seeded(lambda: Places().double(), 0)
    x = inputs(20).reshape(4, 5, 4)
    targets = torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(0))
    targets[:, 3:] = -100
    whole = (x.repeat(2, 1, 1), targets.repeat(2, 1))
    short = (whole[0][:, :3], whole[1][:, :3])
    padded, plain = (
        columns("exact", model, "cross_entropy", data, 8 * 3 * places) for data, places in ((whole, 5), (short, 3))
    )
    torch.testing.assert_close(matrix(padded), matrix(plain))
    many = (x.repeat(1000, 1, 1), targets.repeat(1000, 1))
    drawn = columns("sampled", model, "cross_entropy", many, 4000)
    error = 5 * torch.einsum("ik,jk->ijk", drawn, drawn).std(2) / math.sqrt(4000)
    assert ((matrix(drawn) - matrix(plain)).abs() <= error).all()


@every_device
@pytest.mark.parametrize("fisher", ["sampled", "exact"])
@pytest.mark.parametrize("case", OF_OUTPUTS, ids=lambda case: case.name)
def test_every_kind_of_module_can_be_pruned_by_it(case: Case, fisher: str, device: str) -> None:
    rows = 56 if case.name == "tied" else 36  # seven classes
    result = prune(
        case.model(),
        case.data(),
        0.6,
        "cbs",
        case.loss,
        **{**QUICK, "num_gradients": rows},
        fisher=fisher,
        device=device,
    )
    assert result.pruned == math.ceil(0.6 * result.size)
    assert result.settings["method"]["fisher"] == fisher


def test_rows_are_laid_out_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = linear(), (inputs(), torch.zeros(10, dtype=torch.long))
    whole = columns("exact", model, "cross_entropy", data, 30)
    monkeypatch.setattr(module, "ROWS", 2)
    torch.testing.assert_close(columns("exact", model, "cross_entropy", data, 30), whole)


def examined(fisher: str, **settings: Any) -> Surgery:
    case = CASES["linear"]
    return Surgery(case.model(), case.data(), **{"num_gradients": 30, "progress": False, **settings}, fisher=fisher)


def quadratic_of(surgery: Surgery) -> QuadraticModel:
    method = make_method("wf", surgery.settings)
    assert isinstance(method, OneShot)
    quadratic = surgery.examined(method.examining, True).quadratic
    assert quadratic is not None
    return quadratic


def curvature_of(surgery: Surgery) -> Tensor:
    quadratic = quadratic_of(surgery)
    return quadratic.product(quadratic.w)


@pytest.mark.parametrize("fisher", ["sampled", "exact"])
def test_a_seed_makes_the_run(fisher: str) -> None:
    first, again, other = (examined(fisher, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(curvature_of(first), curvature_of(again))
    assert not torch.equal(curvature_of(first), curvature_of(other))


def test_the_three_differ_and_are_judged_on_the_same_samples() -> None:
    found = {fisher: examined(fisher, loss_samples=8) for fisher in ("empirical", "sampled", "exact")}
    products = [curvature_of(surgery) for surgery in found.values()]
    assert not any(torch.allclose(products[a], products[b], rtol=1e-2) for a, b in ((0, 1), (1, 2), (0, 2)))
    losses = {surgery.prune(0.5, "mp").loss_after for surgery in found.values()}
    assert len(losses | {examined("exact", loss_samples=8).prune(0.5, "mp").loss_after}) == 1


def test_the_first_order_term_is_of_the_true_labels() -> None:
    surgeries = [
        examined(fisher, first_order=True, num_gradients=SAMPLES) for fisher in ("empirical", "sampled", "exact")
    ]
    true, *others = (quadratic_of(surgery).linear for surgery in surgeries)
    assert true is not None
    assert true.abs().max() > 0.05
    for linear in others:
        torch.testing.assert_close(linear, true, rtol=1e-4, atol=1e-6)


def test_whole_samples_are_taken_and_said() -> None:
    notes = examined("exact", num_gradients=32).prune(0.5, "wf").notes
    assert notes == ("exact Fisher matrix: 30 rows are 10 samples, a row for each of 3 outputs",)


def test_data_that_ends_early_is_said() -> None:
    notes = examined("exact", num_gradients=600).prune(0.5, "wf").notes
    assert notes[1] == f"the data gave {3 * SAMPLES} gradients of 1 samples; 600 were asked for"


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"fisher": "true"}, "fisher says which labels .* got 'true'"),
    "exact over groups": ({"fisher": "exact", "gradient_batch": 2}, "of one sample, got gradient_batch=2"),
    "few samples": (
        {"fisher": "exact", "num_gradients": 23},
        r"3 outputs, so num_gradients=23 is 7 samples.*num_gradients=24 or more.*sampled",
    ),
    "loss of model and batch": ({"fisher": "sampled", "loss": own_loss}, r"got <function own_loss.*empirical"),
    "in stages": ({"fisher": "sampled", "schedule": 2}, "fisher belongs to one-shot methods: leave it out"),
    "staged": ({"fisher": "exact", "method": "staged"}, "fisher belongs to one-shot methods: leave it out"),
    "auto": ({"fisher": "exact", "method": "auto"}, "unknown setting 'fisher' for this method"),
    "no data": ({"fisher": "exact", "data": []}, "the data gave no gradient"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_done_is_refused(name: str) -> None:
    arguments, message = BAD[name]
    case = CASES["linear"]
    call = {"model": case.model(), "data": case.data(), "sparsity": 0.5, "method": "wf", "progress": False}
    with pytest.raises(BrainsurgeonError, match=message):
        prune(**{**call, **arguments})


class Wrapped(nn.Module):
    """Gives its output in a tuple, or a single score for all samples."""

    def __init__(self, flat: bool):
        super().__init__()
        self.layer, self.flat = nn.Linear(4, 3), flat

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)[:, 0] if self.flat else (self.layer(x),)


@pytest.mark.parametrize(("flat", "got"), [(True, r"\(10,\)"), (False, "tuple")])
def test_outputs_of_another_form_are_refused(flat: bool, got: str) -> None:
    data = (inputs().float(), torch.zeros(10, dtype=torch.long))
    with pytest.raises(BrainsurgeonError, match=f"must be samples × classes.* got {got}"):
        columns("sampled", Wrapped(flat), "cross_entropy", data, 5)


def test_the_exact_matrix_needs_as_many_outputs_of_every_sample() -> None:
    model = seeded(lambda: Places().double(), 0)
    batches = [(inputs(10 * t).reshape(10, t, 4), torch.zeros(10, t, dtype=torch.long)) for t in (2, 3)]
    found = relabel("exact", BatchLoss(model, "cross_entropy"), "cross_entropy", iter(batches), 120, torch.Generator())
    with pytest.raises(BrainsurgeonError, match="equally many outputs, got 6 and 9"):
        list(found.batches)
