"""Models of every kind: each works, or is refused in words with what to do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from small import network, samples
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

import brainsurgeon
from brainsurgeon.engine.selection import Given
from brainsurgeon.engine.update import Joint
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.gradients import collect_gradients
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights

SMALL: dict[str, Any] = {"num_gradients": 60, "loss_samples": 60, "num_draws": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "mp": {},
    "wf": {"num_gradients": 60},
    "cbs": SMALL,
    "layerwise": {},
    "staged": {"max_gradients": 1000, "schedule": 2},
    "auto": {"max_gradients": 1000},
}


class Checkpointed(nn.Module):
    """A network that computes its middle again on the way back."""

    def __init__(self, reentrant: bool):
        super().__init__()
        self.inner, self.reentrant = network(), reentrant
        self.first = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("method", ["cbs", "staged", "layerwise", "auto"])
def test_checkpointing_inside_forward_gives_the_same_result(reentrant: bool, method: str) -> None:
    class Plain(Checkpointed):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.first(x))

    with torch.random.fork_rng():
        torch.manual_seed(2)
        plain = Plain(reentrant)
        model = Checkpointed(reentrant)
        model.load_state_dict(plain.state_dict())
    settings = SETTINGS[method]
    found, expected = (brainsurgeon.prune(m, samples(), 0.5, method, **settings) for m in (model, plain))
    assert found.loss_after == pytest.approx(expected.loss_after, rel=1e-3)


def test_gradients_of_a_checkpointed_network_are_those_of_the_plain_one() -> None:
    for reentrant in (False, True):
        model = Checkpointed(reentrant).eval().requires_grad_(False)
        loss = BatchLoss(model, "cross_entropy")
        weights = find_weights(model.requires_grad_())
        model.requires_grad_(False)
        found = collect_gradients(loss, weights, [samples(10)], 10)
        model.forward = lambda x, m=model: m.inner(m.first(x))  # type: ignore[method-assign]
        expected = collect_gradients(loss, weights, [samples(10)], 10)
        torch.testing.assert_close(found.columns, expected.columns)


def test_an_output_of_several_parts_is_refused_with_the_way_out() -> None:
    class Pair(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), x

    with pytest.raises(BrainsurgeonError, match=r"tuple of 2.*output\[0\]"):
        brainsurgeon.prune(Pair(6, 3), samples(), 0.5, "mp")
    result = brainsurgeon.prune(Pair(6, 3), samples(), 0.5, "mp", loss=lambda out, y: F.cross_entropy(out[0], y))
    assert result.pruned == 9


def test_data_of_another_type_is_refused_in_words() -> None:
    x, y = samples()
    with pytest.raises(BrainsurgeonError, match=r"holds float64 .*parameters are float32: convert the data"):
        brainsurgeon.prune(network(), (x.double(), y), 0.5, "cbs")
    with pytest.raises(BrainsurgeonError, match="first batch"):
        brainsurgeon.prune(network(), (x[:, :5], y), 0.5, "auto")


class Shared(nn.Module):
    """One module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = self.a
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x).relu()))


class InADict(nn.Module):
    """A weight that forward reads from a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.held = {"a": self.a.weight}

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.linear(x, self.held["a"]).relu())


@pytest.mark.parametrize("kind", [Shared, InADict])
@pytest.mark.parametrize("method", ["mp", "wf", "cbs", "staged", "layerwise", "auto"])
def test_a_weight_that_is_held_twice(kind: type[nn.Module], method: str) -> None:
    result = brainsurgeon.prune(kind(), samples(), 0.6, method, **SETTINGS[method])
    assert result.pruned == 33
    with torch.no_grad():
        after = float(F.cross_entropy(result.model.eval()(samples()[0]), samples()[1]))
    if method in ("mp", "cbs"):
        assert result.loss_after == pytest.approx(after, rel=0.3)


def test_a_search_sees_a_weight_in_a_plain_dict() -> None:
    """A candidate's loss is that of the network with the candidate's weights, wherever it reads them from."""
    from brainsurgeon.network.sample_loss import SampleLoss

    model = InADict().eval()
    weights = find_weights(model)
    values = weights.flatten(model)
    sample = SampleLoss(BatchLoss(model, "cross_entropy"), weights, values, [samples()])
    everything = torch.ones_like(values, dtype=torch.bool)
    gone = sample.without(everything).loss()
    assert gone != sample.at(values).loss()
    assert torch.equal(weights.flatten(model), values)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("method", ["cbs", "staged", "layerwise", "auto"])
def test_the_result_is_the_same_under_inference_mode(mode: Any, method: str) -> None:
    settings = SETTINGS[method]
    expected = brainsurgeon.prune(network(), samples(), 0.6, method, **settings)
    with mode():
        found = brainsurgeon.prune(network(), samples(), 0.6, method, **settings)
    assert not found.model[0].weight.is_inference()
    assert found.loss_after == expected.loss_after
    assert all(torch.equal(found.masks[name], expected.masks[name]) for name in expected.masks)


def test_finetune_trains_under_inference_mode() -> None:
    pruned = brainsurgeon.prune(network(), samples(), 0.5, "mp").model
    expected = brainsurgeon.finetune(pruned, samples(), epochs=2)
    with torch.inference_mode():
        found = brainsurgeon.finetune(pruned, samples(), epochs=2)
    assert found.held_out_after == expected.held_out_after


def test_a_model_made_under_inference_mode_is_pruned_in_place() -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    result = brainsurgeon.prune(model, samples(), 0.5, "cbs", in_place=True, **SMALL)
    assert result.model is model
    assert int((model[0].weight == 0).sum() + (model[2].weight == 0).sum()) == 54


@pytest.mark.parametrize("method", ["cbs", "staged", "layerwise", "gradual", "auto"])
def test_gradients_that_are_all_zero_are_an_error_that_says_why(method: str) -> None:
    def detached(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.detach(), target)

    with pytest.raises(BrainsurgeonError, match="detached"):
        brainsurgeon.prune(network(), samples(), 0.5, method, loss=detached)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6])
def test_a_plain_network_of_any_scale_is_batched(scale: float) -> None:
    model = network().eval()
    with torch.no_grad():
        model[2].weight.mul_(30)  # saturated: gradients are differences of rounded numbers
    loss = BatchLoss(model, lambda output, target: scale * F.cross_entropy(output, target))
    x, _ = samples()
    data = (x, model(x).argmax(1))
    assert collect_gradients(loss, find_weights(model), [data], 50).notes == ()


def test_wrong_batched_gradients_are_noticed_at_any_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    from brainsurgeon.network import rows

    right = rows.vmap

    def wrong(function: Any, in_dims: Any) -> Any:
        return lambda p, g: {name: 2 * value for name, value in right(function, in_dims=in_dims)(p, g).items()}

    monkeypatch.setattr(rows, "vmap", wrong)
    model = network().eval()
    loss = BatchLoss(model, lambda output, target: 1e-9 * F.cross_entropy(output, target))
    (note,) = collect_gradients(loss, find_weights(model), [samples()], 10).notes
    assert "differ from single ones" in note


def test_half_precision_storage_does_not_overflow_in_silence() -> None:
    with pytest.raises(BrainsurgeonError, match=r"reach .*torch.float16 ends at 6.55e\+04.*bfloat16"):
        brainsurgeon.prune(
            network(),
            samples(),
            0.5,
            "cbs-s",
            loss=lambda out, y: 1e6 * F.cross_entropy(out, y),
            dtype=torch.float16,
            num_gradients=20,
        )


def test_no_warning_of_vmap_leaks_and_a_note_is_whole_and_once() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.map(x)
            return x * (1.0 if float(x.detach().sum()) > -1e9 else 0.0)  # no torch.func can follow this

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = brainsurgeon.prune(Odd(), samples(), 0.5, "staged", schedule=3, max_gradients=1000)
    (note,) = [note for note in result.notes if "one by one" in note]
    assert note.endswith(")")


def test_empty_layers_are_passed_over() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    model.empty = nn.Linear(0, 5)  # type: ignore[assignment]
    model.forward = lambda x: model[1](model[0](x))  # type: ignore[method-assign]
    assert find_weights(model).names == ("0.weight", "1.weight")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"device": "cuda"}, "cannot be used here"),
        ({"device": 3.5}, "cannot be used here"),
        ({"seed": "one"}, "seed must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"num_gradients": "many"}, "num_gradients"),
        ({"num_gradients": 10.0}, "num_gradients"),
        ({"dtype": "float32"}, "floating-point type"),
        ({"dtype": torch.int8}, "floating-point type"),
        ({"budget": {0: 0.5}}, "budget must be"),
        ({"budget": {"0": "half"}}, "must lie from 0 to 1"),
        ({"budget": ["uniform"]}, "budget must be"),
        ({"include": 3}, "include and exclude take"),
        ({"damping": "small"}, "damping"),
        ({"loss": 3}, "loss must be"),
    ],
)
def test_wrong_types_are_refused_in_words(arguments: dict[str, Any], words: str) -> None:
    if arguments.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BrainsurgeonError, match=words):
        brainsurgeon.prune(network(), samples(), 0.5, "cbs", **arguments)


def test_a_rule_means_the_same_in_a_budget_as_in_exclude() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(6, 10)), nn.Linear(10, 10), nn.Linear(10, 3))
    result = brainsurgeon.prune(model, None, 0.5, "mp", budget={"0": 0.1, "2": 0.9})
    assert [layer.pruned for layer in result.layers] == [6, 62, 27]
    assert [layer.name for layer in brainsurgeon.prune(model, None, 0.5, "mp", exclude="0").layers] == [
        "1.weight",
        "2.weight",
    ]


def test_given_masks_are_matched_by_name_and_their_shapes_checked() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    masks = brainsurgeon.prune(model, None, 0.5, "mp").masks
    turned = dict(reversed(masks.items()))
    surgery = brainsurgeon.Surgery(model, samples())
    result = surgery.prune(0.5, (Given(turned), Joint()), num_gradients=20)
    assert all(torch.equal(result.masks[name], masks[name]) for name in masks)
    with pytest.raises(BrainsurgeonError, match=r"no layer '3.weight'"):
        surgery.prune(0.5, (Given({"3.weight": masks["0.weight"]}), Joint()), num_gradients=20)
    with pytest.raises(BrainsurgeonError, match=r"must be of shape \(6, 6\)"):
        surgery.prune(0.5, (Given({**masks, "0.weight": masks["0.weight"].reshape(4, 9)}), Joint()), num_gradients=20)
    for wrong in ([1], {"0.weight": [1]}, {}):
        with pytest.raises(BrainsurgeonError, match="boolean tensor"):
            Given(wrong)  # type: ignore[arg-type]


class Mixing(nn.Module):
    """A layer, and a parameter of its own that no layer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mix = nn.Linear(6, 8), nn.Parameter(torch.randn(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.first(x)) @ self.mix


@pytest.mark.parametrize("method", [*SETTINGS, "gradual"])
def test_a_bare_parameter_is_left_alone_by_default_and_pruned_where_it_is_named(method: str) -> None:
    settings = SETTINGS.get(method, {"max_gradients": 400})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Mixing()
    left = brainsurgeon.prune(model, samples(), 0.5, method, **settings)
    assert list(left.masks) == ["first.weight"]
    result = brainsurgeon.prune(model, samples(), 0.5, method, include=["mix", "first"], **settings)
    assert result.pruned == 36
    assert result.masks.keys() == {"mix", "first.weight"}
    assert (result.model.get_parameter("mix")[result.masks["mix"]] == 0).all()
    told = [note for note in result.notes if "mix" in note]
    if method == "layerwise":
        assert told == ["no plain linear map, so pruned by magnitude and without a pattern: mix"]
    if method == "staged":
        assert told == ["no plain linear map, so its curvature is the Fisher's: mix"]


def test_a_bare_parameter_alone_is_nothing_for_layerwise_pruning() -> None:
    with pytest.raises(BrainsurgeonError, match=r'needs linear layers or convolutions.*another method, such as "cbs"'):
        brainsurgeon.prune(Mixing(), samples(), 0.5, "layerwise", include="mix")
