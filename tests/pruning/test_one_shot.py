"""One shot: what is reported of it, what it holds its parts to, and that rivals are judged by the sample loss."""

from typing import Any

import pytest
import torch
from cases import CASES, seeded
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon import Problem, PruningResult, Surgery, prune
from brainsurgeon.engine.selection import Magnitude, WoodFisher
from brainsurgeon.engine.update import Joint, Keep
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.one_shot import Examining, OneShot

QUICK: dict[str, Any] = {"num_gradients": 24, "damping": 1e-2, "progress": False}


def run(case: Any, method: Any, sparsity: float = 0.6, **settings: Any) -> PruningResult:
    return prune(case.model(), case.data(), sparsity, method, case.loss, **{**QUICK, **settings})


def test_losses_before_and_after_are_those_of_the_models() -> None:
    case = CASES["linear"]
    result = run(case, "wf")
    inputs, labels = case.data()
    for model, reported in ((case.model(), result.loss_before), (result.model, result.loss_after)):
        assert reported == pytest.approx(nn.functional.cross_entropy(model(inputs), labels).item(), rel=1e-4)


def test_the_predicted_change_is_that_of_the_fisher_matrix() -> None:
    """½dᵀ(GᵀG/K + λI)d by a plain loop over all samples."""
    case = CASES["linear"]
    result = run(case, "mp+cbs-u", num_gradients=40, update_scale=1.0, blocks="model")
    model, (inputs, labels) = case.model(), case.data()
    rows = []
    for k in range(40):
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs[k : k + 1]), labels[k : k + 1]).backward()
        slopes = [model.get_parameter(name).grad for name in case.prunable]
        rows.append(torch.cat([slope.flatten() for slope in slopes if slope is not None]))
    step = torch.cat([(result.model.get_parameter(n) - case.model().get_parameter(n)).flatten() for n in case.prunable])
    expected = (torch.stack(rows) @ step).square().sum() / 80 + QUICK["damping"] * step.square().sum() / 2
    assert result.predicted_change == pytest.approx(expected.item(), rel=1e-3)


def test_weights_that_no_sample_reaches_are_pruned_first_and_cost_only_damping() -> None:
    """Two dead inputs carry the largest weights; magnitude keeps them, the curvature does not."""
    model = seeded(lambda: nn.Linear(6, 2), 0)
    inputs, targets = seeded(lambda: (torch.randn(200, 6), torch.randn(200, 2)), 1)
    inputs[:, :2] = 0
    with torch.no_grad():
        model.weight[:, :2] = 3.0
    settings: dict[str, Any] = {"sparsity": 0.33, "loss": "mse", "damping": 1e-6, "progress": False}
    free = prune(model, (inputs, targets), method="wf-s", **settings)
    assert free.masks["weight"].tolist() == [[True, True, False, False, False, False]] * 2
    assert free.loss_after == pytest.approx(free.loss_before)
    assert free.predicted_change == pytest.approx(1e-6 / 2 * 4 * 9, rel=1e-3)
    assert not prune(model, (inputs, targets), method="mp", **settings).masks["weight"][:, :2].any()


def test_a_selection_of_ones_own_is_held_to_the_budget() -> None:
    def largest(problem: brainsurgeon.Problem) -> Tensor:
        return problem.budget.lowest(-problem.weights.abs())

    def greedy(problem: brainsurgeon.Problem) -> Tensor:
        return torch.ones_like(problem.weights, dtype=torch.bool)

    case = CASES["linear"]
    assert prune(case.model(), case.data(), 0.5, (largest, Keep()), **QUICK).pruned == 36
    with pytest.raises(brainsurgeon.BrainsurgeonError, match="must prune exactly 36"):
        prune(case.model(), case.data(), 0.5, (greedy, Keep()), **QUICK)


def test_what_an_update_says_of_pruned_weights_is_ignored() -> None:
    """They become exactly zero, and the prediction is for that."""

    def one_everywhere(problem: brainsurgeon.Problem, pruned: Tensor) -> Tensor:
        return torch.ones_like(problem.weights)

    case = CASES["linear"]
    result = prune(case.model(), case.data(), 0.5, (Magnitude(), one_everywhere), **QUICK)
    assert result.pruned == 36
    assert not any(result.model.get_parameter(name)[mask].any() for name, mask in result.masks.items())
    kept = ~result.masks["0.weight"]
    expected = case.model().get_parameter("0.weight") + 1
    assert torch.equal(result.model.get_parameter("0.weight")[kept], expected[kept])


def test_on_a_trained_network_the_papers_methods_end_below_magnitude_in_loss() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 0)
    inputs = seeded(lambda: torch.randn(300, 6), 3)
    labels = (inputs[:, :3] + 0.5 * inputs[:, 3:]).argmax(1)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    surgery = Surgery(model, (inputs, labels), num_gradients=300, damping=1e-4, progress=False)
    losses = {name: surgery.prune(0.7, name).loss_after for name in ("mp", "algorithm1", "cbs-s", "cbs")}
    assert max(losses["algorithm1"], losses["cbs-s"], losses["cbs"]) < losses["mp"]


def largest_first(problem: Problem) -> Tensor:
    return problem.budget.lowest(-problem.weights.abs())


@pytest.mark.parametrize("order", ["good first", "good second"])
def test_of_rival_selections_the_one_of_smaller_loss_is_kept(order: str) -> None:
    case = CASES["linear"]
    pair = (Magnitude(), largest_first) if order == "good first" else (largest_first, Magnitude())
    rivals = run(case, OneShot(pair[0], Joint(), rivals=(pair[1],)))
    alone = [run(case, OneShot(selection, Joint())) for selection in pair]
    best = min(alone, key=lambda result: result.loss_after)
    assert rivals.loss_after == best.loss_after
    assert all(torch.equal(mask, best.masks[name]) for name, mask in rivals.masks.items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_gradients": 0}, "num_gradients must be a whole number of at least 1, got 0"),
        ({"num_gradients": 2.5}, "num_gradients must be a whole number"),
        ({"gradient_batch": True}, "gradient_batch must be a whole number"),
        ({"loss_samples": "many"}, "loss_samples must be a whole number .* got .many"),
        ({"fisher": "true"}, 'fisher says which labels .*"sampled".* got .true'),
        ({"fisher": "exact", "gradient_batch": 4}, "a row is of one sample, got gradient_batch=4"),
        ({"damping": 0}, "damping must be positive"),
        ({"damping": "small"}, "damping must be positive .* got .small"),
        ({"dtype": torch.int8}, "floating-point type such as bfloat16, got torch.int8"),
        ({"dtype": "float32"}, "floating-point type"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused_by_the_method_itself(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BrainsurgeonError, match=message):
        OneShot(Magnitude(), **settings)


def test_the_settings_of_an_examination_are_those_of_its_method_and_nothing_else() -> None:
    method = OneShot(WoodFisher(), Joint(), name="mine", num_gradients=7, damping=0.5)
    assert method.examining == Examining(num_gradients=7, damping=0.5)
    assert method.examining == OneShot(Magnitude(), Keep(), num_gradients=7, damping=0.5).examining
    assert hash(method.examining)


@pytest.mark.parametrize(
    ("method", "curvature", "data"),
    [
        (OneShot(Magnitude(), Keep()), False, False),
        (OneShot(Magnitude(), Joint()), True, True),
        (OneShot(Magnitude(), Keep(), rivals=(WoodFisher(),)), True, True),
        (OneShot(largest_first, Keep()), True, True),
    ],
)
def test_a_method_says_what_it_needs(method: OneShot, curvature: bool, data: bool) -> None:
    assert (method.uses_curvature, method.uses_data) == (curvature, data)


def test_the_first_order_term_is_of_the_true_labels_whatever_the_curvature_is_of() -> None:
    """Of the samples that the gradients were taken on: all 40 here."""
    case = CASES["linear"]
    model, (inputs, labels) = case.model(), case.data()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    expected = torch.cat([model.get_parameter(name).grad.flatten() for name in case.prunable])
    for fisher in ("empirical", "sampled", "exact"):
        rows = 120 if fisher == "exact" else 40
        surgery = Surgery(case.model(), case.data(), progress=False)
        examining = Examining(num_gradients=rows, fisher=fisher, first_order=True)
        quadratic = surgery.examined(examining, True).quadratic
        assert quadratic is not None
        assert quadratic.linear is not None
        torch.testing.assert_close(quadratic.linear, expected.double(), rtol=1e-4, atol=1e-6)


def test_the_loss_after_is_that_of_the_very_model_given_back() -> None:
    """A model in half precision rounds what it is given: the loss is measured after that."""
    case = CASES["bfloat16"]
    result = run(case, "mp+cbs-u")
    inputs, labels = case.data()
    found = nn.functional.cross_entropy(result.model.eval()(inputs).float(), labels)
    assert result.loss_after == pytest.approx(found.item(), rel=1e-2)
    assert result.loss_after != result.loss_before
