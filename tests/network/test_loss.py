"""One loss for every calling convention."""

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from cases import CASES, Case, dict_loss, every_case, seeded
from networks import BY_NAME
from small import pair
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parameters_to_vector

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.checks import check_loss
from brainsurgeon.network.loss import LOSSES, BatchLoss, LossLike, output_loss, variance_of


class OwnLoss(nn.Module):
    """A model that gives its own loss, in a dict or as an attribute."""

    def __init__(self, wrap: type | None = dict):
        super().__init__()
        self.layer, self.wrap = nn.Linear(3, 1), wrap

    def forward(self, x: Tensor, labels: Tensor) -> object:
        loss = F.mse_loss(self.layer(x).squeeze(1), labels)
        return {"loss": loss} if self.wrap is dict else type("Output", (), {"loss": loss})()


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


@pytest.mark.parametrize("name", ["mse", "l1", "huber", "bce_with_logits"])
def test_targets_in_a_row_are_compared_with_outputs_in_a_column(name: str) -> None:
    """Torch alone would compare each of n outputs with each of n targets."""
    model, x, y = nn.Linear(6, 1), torch.randn(9, 6), torch.rand(9)
    loss = BatchLoss(model, name)
    assert loss((x, y)).item() == pytest.approx(loss((x, y.unsqueeze(1))).item(), rel=1e-6)
    with pytest.raises(BrainsurgeonError, match=r"outputs are \(9, 1\) where the targets are \(9, 2\)"):
        loss((x, torch.rand(9, 2)))


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
    with pytest.raises(BrainsurgeonError, match=r'unknown loss .crossentropy.: give one of .*"cross_entropy"'):
        BatchLoss(nn.Linear(6, 3), "crossentropy")
    with pytest.raises(BrainsurgeonError, match="must be a name or a callable"):
        BatchLoss(nn.Linear(6, 3), 3)  # type: ignore[arg-type]


def distance_from(loss: LossLike, dense: nn.Module, probe: Any) -> Callable[[nn.Module, Any], Tensor]:
    """The distance of a model's outputs from a dense one's."""
    parts = output_loss(loss, dense, probe)
    assert parts is not None
    return parts.distance_from(dense)


def matching(case: Case) -> tuple[nn.Module, BatchLoss]:
    """A model, and the distance of its outputs from those it has now."""
    model = case.model().eval()
    return model, BatchLoss(model, distance_from(case.loss, copy.deepcopy(model), case.data()))


WITH_OUTPUTS = [name for name in CASES if name != "dict_batch"]


@pytest.mark.parametrize("name", WITH_OUTPUTS)
def test_the_distance_from_the_dense_outputs_vanishes_at_the_dense_weights_with_its_gradient(name: str) -> None:
    model, distance = matching(CASES[name])
    value = distance(CASES[name].data())
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-6)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert max(float(gradient.abs().max()) for gradient in gradients) < 0.01 * CASES[name].tolerance ** 0.5


@pytest.mark.parametrize("name", WITH_OUTPUTS)
def test_the_distance_grows_away_from_the_dense_weights(name: str) -> None:
    model, distance = matching(CASES[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    assert distance(CASES[name].data()).item() > 1e-4


@pytest.mark.parametrize("loss", ["cross_entropy", "nll"])
def test_the_hessian_of_the_distance_is_the_fisher_matrix(loss: str) -> None:
    """Σ_y p(y|x) ∇log p(y|x) ∇log p(y|x)ᵀ, the expectation over the model's own labels, not over those of the data."""
    layers = [nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)]
    model = seeded(lambda: nn.Sequential(*layers, *([nn.LogSoftmax(1)] if loss == "nll" else [])), 0).double()
    x = seeded(lambda: torch.randn(5, 3), 1).double()
    distance = distance_from(loss, copy.deepcopy(model), (x, None))
    start = parameters_to_vector(model.parameters()).detach()

    def named(flat: Tensor) -> dict[str, Tensor]:
        parts = flat.split([p.numel() for p in model.parameters()])
        return {n: part.view_as(p) for (n, p), part in zip(model.named_parameters(), parts, strict=True)}

    def divergence(flat: Tensor) -> Tensor:
        return distance(lambda inputs: functional_call(model, named(flat), (inputs,)), (x, None))  # type: ignore[arg-type]

    def log_probabilities(flat: Tensor) -> Tensor:
        return F.log_softmax(functional_call(model, named(flat), (x,)), 1).reshape(-1)

    scores = torch.autograd.functional.jacobian(log_probabilities, start)
    fisher = scores.T @ (log_probabilities(start).exp().unsqueeze(1) * scores) / len(x)
    hessian = torch.autograd.functional.hessian(divergence, start)
    torch.testing.assert_close(hessian, fisher, rtol=1e-8, atol=1e-10)
    assert float(fisher.abs().max()) > 0.01


def test_the_distance_is_the_divergence_of_the_model_from_the_dense_one() -> None:
    """KL(dense ‖ model): the dense model says which classes matter."""
    case = CASES["linear"]
    model, distance = matching(case)
    x = case.data()[0]
    dense = F.log_softmax(model(x), 1).detach()
    with torch.no_grad():
        model[2].weight.mul_(-2.0)  # type: ignore[index, operator, union-attr]
    expected = F.kl_div(F.log_softmax(model(x), 1), dense, reduction="batchmean", log_target=True)
    other_way = F.kl_div(dense, F.log_softmax(model(x), 1), reduction="batchmean", log_target=True)
    assert distance(case.data()).item() == pytest.approx(expected.item(), rel=1e-5)
    assert expected.item() != pytest.approx(other_way.item(), rel=0.01)


def test_outputs_that_are_no_classes_are_matched_by_their_squared_difference() -> None:
    case = CASES["regression"]
    model, distance = matching(case)
    x = case.data()[0]
    before = model(x).detach()
    with torch.no_grad():
        model[2].bias.add_(0.5)  # type: ignore[index, operator, union-attr]
    assert distance(case.data()).item() == pytest.approx(0.25 / float(before.var(correction=0)), rel=1e-5)
    torch.testing.assert_close(model(x) - before, torch.full_like(before, 0.5))


def test_outputs_that_are_no_tensor_have_no_distance() -> None:
    """A loss of (output, target) may read any kind of output; only tensors can be compared."""

    class Structured(nn.Linear):
        def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"logits": super().forward(x)}

    def loss(output: dict[str, Tensor], target: Tensor) -> Tensor:
        return F.cross_entropy(output["logits"], target)

    model = Structured(6, 3)
    assert output_loss(loss, model, pair()) is None
    assert output_loss("cross_entropy", nn.Linear(6, 3), pair()) is not None


@pytest.mark.parametrize(
    "loss",
    [F.cross_entropy, nn.CrossEntropyLoss(), F.nll_loss, nn.NLLLoss()],
    ids=["cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss"],
)
def test_a_loss_of_classes_is_known_as_a_function_and_as_a_module_too(loss: LossLike) -> None:
    dense, model = nn.Linear(6, 3), nn.Linear(6, 3)
    batch = (torch.randn(5, 6), torch.zeros(5, dtype=torch.long))
    named, given = distance_from("cross_entropy", dense, batch), distance_from(loss, dense, batch)
    assert torch.equal(given(model, batch), named(model, batch))


@pytest.mark.parametrize(("model", "enabled"), [(nn.LSTM(3, 3), False), (nn.Linear(3, 3), True)])
def test_recurrent_layers_do_without_cudnn_which_has_no_gradients_for_them_in_eval_mode(
    model: nn.Module, enabled: bool
) -> None:
    seen = []

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        seen.append(torch.backends.cudnn.enabled)
        return batch.sum()

    BatchLoss(model, loss)(torch.ones(2, 3))
    assert seen == [enabled]
    assert torch.backends.cudnn.enabled


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_loss_of_the_next_token_is_the_models_own_with_its_tokens_as_labels(name: str) -> None:
    model, tokens = BY_NAME[name].model(), BY_NAME[name].data()
    expected = model(input_ids=tokens, labels=tokens).loss
    for batch in (tokens, [tokens], (tokens,), {"input_ids": tokens}):
        assert torch.isclose(BatchLoss(model, "next_token")(batch), expected, rtol=1e-5)
    mask = torch.ones_like(tokens)
    mask[:, 0] = 0
    masked = {"input_ids": tokens, "attention_mask": mask}
    other = BatchLoss(model, "next_token")(masked)
    assert torch.isclose(other, model(**masked, labels=tokens).loss, rtol=1e-5)
    assert not torch.isclose(other, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "batch",
    [
        torch.rand(2, 5),
        {"input_ids": torch.rand(2, 5)},
        torch.zeros(4, dtype=torch.long),
        torch.zeros(2, 1, dtype=torch.long),
        (torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, dtype=torch.long)),
        {"tokens": torch.zeros(2, 5, dtype=torch.long)},
    ],
    ids=["floats", "floats by name", "one sequence", "one token", "labels", "another name"],
)
def test_the_loss_of_the_next_token_takes_whole_numbers_alone(batch: object) -> None:
    """It is refused before the model is called."""
    with pytest.raises(BrainsurgeonError, match="must be samples × tokens, whole numbers"):
        BatchLoss(nn.Identity(), "next_token")(batch)


def test_a_language_model_must_give_logits() -> None:
    with pytest.raises(BrainsurgeonError, match=r"must give logits.*got a tuple of 1"):
        BatchLoss(Returning(), "next_token")(torch.zeros(2, 5, dtype=torch.long))


class Returning(nn.Module):
    """Gives something else."""

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        return (tokens,)


def test_the_distance_of_tokens_is_the_mean_divergence_over_all_positions() -> None:
    dense, tokens = BY_NAME["llama"].model(), BY_NAME["llama"].data()
    distance = distance_from("next_token", dense, tokens)
    assert float(distance(dense, tokens)) == pytest.approx(0, abs=1e-6)
    other = copy.deepcopy(dense)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    found, wanted = (model(tokens).logits.flatten(0, 1).log_softmax(-1) for model in (other, dense))
    expected = F.kl_div(found, wanted, reduction="batchmean", log_target=True)
    assert float(distance(other, tokens)) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "loss", "axis"),
    [("residual", "cross_entropy", 1), ("residual", nn.CrossEntropyLoss(), 1), ("llama", "next_token", -1)],
    ids=str,
)
def test_a_loss_of_outputs_is_its_two_steps(name: str, loss: LossLike, axis: int) -> None:
    network = BY_NAME[name]
    model, batch = network.model(), network.batches()[0]
    parts = output_loss(loss, model, batch)
    assert parts is not None
    assert parts.axis == axis
    assert torch.equal(parts.loss(parts.outputs(model, batch), batch), BatchLoss(model, loss)(batch))


def test_a_loss_of_numbers_has_no_axis_of_classes() -> None:
    case = CASES["regression"]
    parts = output_loss("mse", case.model(), case.data())
    assert parts is not None
    assert parts.axis is None


def test_numbers_are_measured_by_the_variance_of_the_probe_however_few_a_batch_holds() -> None:
    model, x = seeded(lambda: nn.Linear(3, 1), 0), seeded(lambda: torch.randn(50, 3), 1)
    parts = output_loss("mse", model, (x, torch.zeros(50, 1)))
    assert parts is not None
    scale = float(model(x).var(correction=0))
    wanted = torch.tensor([[1.0], [3.0]])
    for rows in (slice(2), slice(1)):
        assert float(parts.distance(wanted[rows] + 2, wanted[rows])) == pytest.approx(4 / scale, rel=1e-5)


def test_the_variance_of_equal_numbers_is_their_square_or_one() -> None:
    assert variance_of(torch.tensor([3.0, 3.0])) == 9
    assert variance_of(torch.zeros(4, dtype=torch.bfloat16)) == 1
    assert variance_of(torch.tensor([1.0, 3.0])) == 1


@pytest.mark.parametrize("loss", ["model", dict_loss])
def test_a_loss_of_the_model_has_no_steps(loss: LossLike) -> None:
    assert output_loss(loss, CASES["dict_batch"].model(), CASES["dict_batch"].data()) is None


@pytest.mark.parametrize("loss", ["cross_entropy", nn.CrossEntropyLoss()], ids=str)
def test_the_distance_of_pixels_is_the_mean_divergence_over_all_of_them(loss: LossLike) -> None:
    """Classes lie along the second axis, whatever comes after it: the divergence of every pixel, one by one."""
    dense, model = seeded(lambda: nn.Conv2d(3, 4, 1).double(), 0), seeded(lambda: nn.Conv2d(3, 4, 1).double(), 1)
    x = seeded(lambda: torch.randn(5, 3, 2, 6, dtype=torch.float64), 2)
    distance = distance_from(loss, dense, (x, None))
    found = distance(model, (x, torch.zeros(5, 2, 6).long()))
    each = []
    for sample, row, column in product(range(5), range(2), range(6)):
        pixel = x[sample, :, row, column].view(1, 3, 1, 1)
        p, q = (torch.softmax(net(pixel).view(4), 0) for net in (dense, model))
        each.append(float((p * (p / q).log()).sum()))
    assert float(found) == pytest.approx(sum(each) / len(each), rel=1e-9)
