"""The distance from the dense outputs, of any form; its drawn rows have the Gauss–Newton matrix as mean square."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F  # noqa: N812

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.match import Match, bound_loss
from brainsurgeon.network.output_costs import output_costs

CPU = torch.device("cpu")
Pair = namedtuple("Pair", ["logits", "value"])


@dataclass
class Answer:
    logits: Tensor
    value: Tensor


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tuple": lambda a, b: (a, b),
    "nested": lambda a, b: [a, {"deep": (b, "words", None)}],
    "dict": lambda a, b: {"first": a, "value": b, "count": torch.tensor(3), "loss": b.mean()},
    "ordered": lambda a, b: OrderedDict(first=a, value=b),
    "dataclass": lambda a, b: Answer(a, b),
    "namedtuple": lambda a, b: Pair(a, b),
}


class TwoHeads(nn.Module):
    """A body with two heads, whose answers come in any form."""

    def __init__(self, form: str):
        super().__init__()
        self.body, self.head, self.value = nn.Linear(5, 4), nn.Linear(4, 3), nn.Linear(4, 2)
        self.form = form

    def forward(self, x: Tensor) -> Any:
        hidden = torch.tanh(self.body(x))
        return FORMS[self.form](self.head(hidden), self.value(hidden))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return make()


def samples(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def bound(model: nn.Module, data: Any, name: str = "match") -> Match:
    found = bound_loss(name, data, lambda: model, CPU)
    assert isinstance(found, Match)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_every_form_are_compared(form: str) -> None:
    dense, other = seeded(lambda: TwoHeads(form)), seeded(lambda: TwoHeads(form))
    x = samples(40, 5)
    loss = bound(dense, x)
    assert [part.axis for part in loss.compared] == [1 if form in ("dataclass", "namedtuple") else None, None]
    with torch.no_grad():
        assert float(loss(other, x)) == 0.0
        other.head.weight.add_(0.3)  # type: ignore[operator,union-attr]
        other.value.bias.mul_(2.0)  # type: ignore[operator,union-attr]
        hidden = torch.tanh(dense.body(x))  # type: ignore[operator]
        a, b = dense.head(hidden), dense.value(hidden)  # type: ignore[operator]
        new_a, new_b = other.head(hidden), other.value(hidden)  # type: ignore[operator]
    first = (a - new_a).square().mean() / a.double().var(correction=0)
    if form in ("dataclass", "namedtuple"):
        first = F.kl_div(new_a.log_softmax(1), a.log_softmax(1), log_target=True, reduction="batchmean")
    wanted = (first + (b - new_b).square().mean() / b.double().var(correction=0)) / 2
    assert float(loss(other, x).detach()) == pytest.approx(float(wanted), rel=1e-5)


def test_states_without_an_entry_for_each_sample_are_passed_by() -> None:
    loss = bound(nn.LSTM(3, 4, batch_first=True), samples(20, 6, 3))
    assert [part.path for part in loss.compared] == [("0",)]  # not the hidden state, layers × samples


class Sole(nn.Module):
    """A network of a hidden layer, in float64, with logits or numbers at some places."""

    def __init__(self, places: int):
        super().__init__()
        self.places = places
        self.body, self.head = nn.Linear(4, 5, bias=False), nn.Linear(5, 3 * places, bias=False)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x))).view(-1, 3, self.places).squeeze(-1)


def gauss_newton(model: nn.Module, loss: Match, x: Tensor) -> Tensor:
    """Return the Hessian of the distance at the dense weights, entry by entry, by automatic differentiation."""
    names = ["body.weight", "head.weight"]
    shapes = [model.get_parameter(name).shape for name in names]
    flat = torch.cat([model.get_parameter(name).detach().reshape(-1) for name in names])

    def value(vector: Tensor) -> Tensor:
        parts = vector.split([shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        found = functional_call(model, weights, (x,))
        return loss.distance((found,), loss.wanted(x))

    return torch.autograd.functional.hessian(value, flat)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("name", ["match", "match:classes"])
def test_the_drawn_rows_have_the_gauss_newton_matrix_as_their_mean_square(name: str, places: int) -> None:
    model = seeded(lambda: Sole(places))
    x = samples(6, 4).double()
    loss = bound(model, x, name)
    wanted = gauss_newton(model, loss, x)
    generator, draws, total = torch.Generator().manual_seed(0), 2000, torch.zeros_like(wanted)
    pulled = loss.pulled(model)
    weights = {f"model.{n}": model.get_parameter(n).detach() for n in ("body.weight", "head.weight")}
    rows = vmap(grad(lambda w, b: functional_call(pulled, w, (b,))), in_dims=(None, 0))
    many = x.repeat(draws, 1)
    for batch, directions in loss.drawn(many.split(6000), generator):
        alone = (batch.unsqueeze(1), [direction.unsqueeze(1) for direction in directions])
        found = torch.cat([part.flatten(1) for part in rows(weights, alone).values()], 1)
        total += found.T @ found
    assert torch.allclose(total / len(many), wanted, atol=0.05 * float(wanted.diagonal().max()))
    assert float((total / len(many)).trace()) == pytest.approx(float(wanted.trace()), rel=0.03)


def test_a_group_of_samples_is_drawn_without_bias() -> None:
    """The row of B samples is the sum over √B: its mean square is that of the single rows."""
    model = seeded(lambda: Sole(1))
    x = samples(4, 4).double()
    loss = bound(model, x)
    generator, total, draws = torch.Generator().manual_seed(0), torch.zeros(15, 15, dtype=torch.float64), 2500
    wanted = gauss_newton(model, loss, x)[-15:, -15:]
    with torch.no_grad():
        hidden = torch.tanh(model.body(x))  # type: ignore[operator]
    for _, (directions,) in loss.drawn([x] * draws, generator):
        row = torch.einsum("no,ni->oi", directions, hidden).reshape(-1) / 2.0
        total += torch.outer(row, row)
    assert torch.allclose(total / draws, wanted, atol=0.07 * float(wanted.diagonal().max()))


def test_costs_of_outputs_are_the_curvature_there() -> None:
    """The last layer's outputs are the model's own: c = Λ_oo summed over places and divided by M."""
    model = seeded(lambda: Sole(1))
    x = samples(50, 4).double()
    loss = bound(model, x)
    drawn = list(loss.drawn([x], torch.Generator().manual_seed(0)))
    found = output_costs(loss.pulled(model, mean=True), linear_maps(model, ["head.weight"]), drawn)
    expected = 2 / loss.compared[0].variance / 3
    assert found["head.weight"].tolist() == pytest.approx([expected] * 3, rel=1e-6)  # of squares in float32


def test_data_of_every_form_is_taken() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.left(a) * self.right(b)

    a, b = samples(60, 3), samples(60, 2)
    for data in ((a, b), {"a": a, "b": b}, [(a[:30], b[:30]), (a[30:], b[30:])]):
        result = brainsurgeon.prune(seeded(Two), data, 0.5, "cbs", "match", num_gradients=50)
        assert result.loss_before == 0.0
        assert result.pruned == 10
        assert result.settings["loss"] == "match"
    single = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    plain = brainsurgeon.prune(single, a, 0.5, "wf", "match", num_gradients=50)
    paired = brainsurgeon.prune(single, (a, torch.zeros(60, dtype=torch.long)), 0.5, "wf", "match", num_gradients=50)
    assert torch.equal(plain.masks["0.weight"], paired.masks["0.weight"])  # the targets are left out


@pytest.mark.parametrize("method", ["cbs", "wf", "layerwise", "mp"])
def test_curvature_keeps_the_outputs_better_than_magnitude(method: str) -> None:
    """Inputs of very unlike scales: what magnitude removes matters most."""
    network = seeded(lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3)))
    x = samples(400, 12) * torch.logspace(-2, 0, 12)
    worst = brainsurgeon.prune(network, x, 0.6, "mp", "match")
    found = brainsurgeon.prune(network, x, 0.6, method, "match")
    assert found.loss_before == worst.loss_before == 0.0
    assert found.loss_after is not None
    assert worst.loss_after is not None
    if method != "mp":
        assert found.loss_after < 0.5 * worst.loss_after


@pytest.mark.parametrize("method", ["auto", "gradual"])
def test_training_without_labels_brings_the_outputs_back(method: str) -> None:
    network = seeded(lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3)))
    x = samples(300, 12)
    cut = brainsurgeon.prune(network, x, 0.7, "mp", "match").loss_after
    found = brainsurgeon.prune(network, x, 0.7, method, "match", max_gradients=20_000).loss_after
    assert cut is not None
    assert found is not None
    assert found < 0.5 * cut


@pytest.mark.parametrize(
    ("data", "settings", "words"),
    [
        (samples(20, 7), {}, "the model failed on them"),
        (samples(20, 5), {"loss": "match:words"}, "unknown loss 'match:words'"),
        (samples(20, 5), {"fisher": "exact"}, 'take fisher="sampled"'),
        (samples(20, 5), {"method": "staged"}, "where the distance from the dense outputs has none"),
        (samples(0, 5), {}, "the data is empty"),
    ],
)
def test_what_cannot_be_matched_is_refused_in_words(data: Tensor, settings: dict[str, Any], words: str) -> None:
    given = {"method": "cbs", "loss": "match", **settings}
    with pytest.raises(BrainsurgeonError, match=words):
        brainsurgeon.prune(nn.Linear(5, 2), data, 0.5, **given)


def test_outside_of_pruning_there_is_no_dense_model() -> None:
    with pytest.raises(BrainsurgeonError, match="which only pruning knows"):
        BatchLoss(nn.Linear(5, 2), "match")
    with pytest.raises(BrainsurgeonError, match="no tensor of real numbers"):
        bound_loss("match", torch.arange(5), nn.Identity, CPU)


def test_the_first_order_term_is_zero_at_the_dense_weights() -> None:
    network, x = seeded(lambda: nn.Linear(8, 3)), samples(200, 8)
    given = [brainsurgeon.prune(network, x, 0.5, "cbs", "match", first_order=first) for first in (False, True)]
    assert torch.equal(given[0].masks["weight"], given[1].masks["weight"])
