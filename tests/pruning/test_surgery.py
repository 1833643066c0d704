"""A prepared model: examinations are shared, no call depends on another, and every bad input has an answer in words."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from cases import CASES
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils import prune as torch_prune
from trained import rings, trained

from brainsurgeon import BrainsurgeonError, PruningResult, Surgery, prune
from brainsurgeon.engine.curvature import compensation, conjugate
from brainsurgeon.engine.curvature.conjugate import conjugate_gradients
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.outcome import Start

QUICK: dict[str, Any] = {"num_gradients": 8, "progress": False}


def model() -> nn.Module:
    return CASES["linear"].model()


def data() -> tuple[Tensor, Tensor]:
    return CASES["linear"].data()


def changed(change: Callable[[nn.Module], object]) -> nn.Module:
    network = model()
    with torch.no_grad():
        change(network)
    return network


def broken_inputs() -> tuple[Tensor, Tensor]:
    inputs, labels = data()
    return inputs * torch.nan, labels


def assert_same(one: PruningResult, other: PruningResult) -> None:
    """Bit by bit: weights, masks, losses and predictions."""
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])
    assert all(torch.equal(mask, other.masks[name]) for name, mask in one.masks.items())
    told = ("loss_before", "loss_after", "predicted_change", "notes")
    assert [getattr(one, name) for name in told] == [getattr(other, name) for name in told]


class Noisy(nn.Linear):
    """Drops out whatever the mode."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, training=True)


BAD_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "sparsity 0": ({"sparsity": 0}, "sparsity must lie strictly between 0 and 1 .* got 0"),
    "sparsity 1": ({"sparsity": 1.0}, "strictly between 0 and 1"),
    "sparsity in percent": ({"sparsity": 90}, "strictly between 0 and 1 .* got 90"),
    "negative sparsity": ({"sparsity": -0.1}, "strictly between 0 and 1"),
    "sparsity that is not a number": ({"sparsity": float("nan")}, "strictly between 0 and 1"),
    "sparsity in words": ({"sparsity": "0.9"}, "strictly between 0 and 1 .* got '0.9'"),
    "sparsity as a tensor": ({"sparsity": torch.tensor(0.9)}, "strictly between 0 and 1"),
    "model that is no model": ({"model": len}, "model must be a torch.nn.Module, got builtin_function"),
    "samples without a sample": ({"data": (torch.ones(0, 6), torch.ones(0))}, "the data gave no gradient"),
    "no data": ({"data": []}, "the data gave no gradient: it is empty"),
    "no data where no gradient is needed": ({"data": [], "method": "mp"}, "the data is empty"),
    "data that is no data": ({"data": 3}, "data must be .* got int"),
    "no network weights": ({"model": nn.ReLU()}, "nothing to prune: no trainable weight"),
    "pattern for nothing": (
        {"include": "conv*"},
        r"pattern 'conv\*' matches no parameter; the model has: 0.weight",
    ),
    "type for nothing": ({"exclude": nn.Conv2d}, "module type Conv2d matches no parameter"),
    "rule that is no rule": (
        {"include": 5},
        "include and exclude take names, patterns and module types, got 5",
    ),
    "everything excluded": ({"exclude": nn.Linear}, "nothing to prune"),
    "batch of another form": (
        {"data": [torch.ones(4, 6)]},
        r"a batch must be \(inputs, targets\), got a Tensor",
    ),
    "batch with text": ({"data": [(torch.ones(4, 6), ["a"] * 4)]}, "must hold tensors only .* got a str"),
    "batch of unequal parts": ({"data": (torch.ones(4, 6), torch.ones(3))}, "one entry per sample"),
    "NaN in the data": ({"data": broken_inputs()}, "the loss is nan at sample 0 .* 6 of its 6 numbers are NaN"),
    "unknown loss": ({"loss": "crossentropy"}, "unknown loss 'crossentropy'"),
    "loss that is no loss": ({"loss": 3}, "loss must be a name or a callable"),
    "loss per sample": ({"loss": nn.CrossEntropyLoss(reduction="none")}, "must be one number"),
    "unknown method": ({"method": "cbs-x"}, "unknown method 'cbs-x'. Did you mean 'cbs"),
    "no method": (
        {"method": None},
        "method must be a name, one of the method classes .* got None; the names are: auto, ",
    ),
    "pair of names": (
        {"method": ("mp", "cbs-u")},
        "or a pair of a selection and an update that can be called, got .'mp', 'cbs-u'",
    ),
    "unknown setting": ({"num_draw": 3}, "unknown setting 'num_draw' .*Did you mean 'num_draws'"),
    "bad scale": ({"update_scale": "big"}, 'update_scale must be "auto" or a number'),
    "gradients as integers": ({"dtype": torch.int32}, "floating-point type .* got torch.int32"),
    "bad blocks": ({"blocks": "columns"}, 'blocks must be "model", "layer", "auto"'),
    "bad damping": ({"damping": 0.0}, "damping must be positive"),
    "no gradients": ({"num_gradients": 0}, "num_gradients must be a whole number of at least 1, got 0"),
    "no samples a row": ({"gradient_batch": 0}, "gradient_batch must be a whole number of at least 1, got 0"),
    "no samples for the loss": ({"loss_samples": 0}, "loss_samples must be a whole number of at least 1, got 0"),
    "rows larger than the data": ({"gradient_batch": 41}, "fewer than gradient_batch=41 samples"),
    "unknown budget": ({"budget": "layerwise"}, 'budget must be "global", "uniform" or'),
    "budget for no layer": (
        {"budget": {"7.*": 0.5}},
        r"budget pattern '7\.\*' matches no layer; the layers are: 0",
    ),
    "budget out of range": ({"budget": {"0.*": 1.5}}, r"the sparsity of '0\.\*' must lie from 0 to 1, got 1.5"),
    "budget that leaves too much": (
        {"budget": {"*": 0.2}},
        r"names every layer and comes to 15 of 72 weights \(0.2083\), while the sparsity asks for 36",
    ),
    "budget that takes too much": ({"budget": {"0.*": 0.99}}, "cannot be met: 36 .* fix 48"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_call_is_answered(name: str) -> None:
    arguments, message = BAD_CALLS[name]
    call = {"model": model(), "data": data(), "sparsity": 0.5, "method": "cbs", **QUICK, **arguments}
    with pytest.raises(BrainsurgeonError, match=message):
        prune(**call)


BAD_MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "NaN in a weight": (
        lambda: changed(lambda m: m[2].weight.view(-1)[3].fill_(torch.nan)),  # type: ignore[index]
        {},
        "parameter '2.weight' holds NaN or infinite values",
    ),
    "infinite weight": (
        lambda: changed(lambda m: m[0].weight.view(-1)[0].fill_(torch.inf)),  # type: ignore[index]
        {},
        "parameter '0.weight' holds NaN or infinite values",
    ),
    "frozen layer asked for": (
        lambda: model().requires_grad_(False),
        {"include": "2"},
        "what include gives is frozen .* name them in include, as '2.weight'",
    ),
    "all frozen": (lambda: model().requires_grad_(False), {}, "nothing to prune"),
    "weight norm": (
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 3))),
        {},
        "is parametrised, .*remove_parametrizations",
    ),
    "spectral norm": (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 3))),
        {},
        "is parametrised",
    ),
    "mask of another tool": (
        lambda: changed(lambda m: torch_prune.l1_unstructured(m[0], "weight", 0.5)),  # type: ignore[index]
        {},
        r"'0\.weight_orig' already carries a mask of torch.nn.utils.prune: make it permanent",
    ),
    "noise in the forward pass": (lambda: nn.Sequential(Noisy(6, 3)), {}, "the loss is not deterministic"),
}


@pytest.mark.parametrize("method", ["mp", "cbs", "staged"])
@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_model_that_cannot_be_pruned_is_refused(name: str, method: str) -> None:
    make, arguments, message = BAD_MODELS[name]
    with pytest.raises(BrainsurgeonError, match=message):
        prune(make(), data(), 0.5, method, **(QUICK if method != "staged" else {}), **arguments)


def test_a_refused_model_can_be_pruned_once_the_advice_is_followed() -> None:
    network = changed(lambda m: torch_prune.l1_unstructured(m[0], "weight", 0.5))  # type: ignore[index]
    torch_prune.remove(network[0], "weight")  # type: ignore[index]
    assert prune(network, data(), 0.6, "wf", **QUICK).pruned == 44
    masked = changed(lambda m: torch_prune.l1_unstructured(m[0], "weight", 0.5))  # type: ignore[index]
    assert list(prune(masked, data(), 0.5, "wf", exclude="0", **QUICK).masks) == ["2.weight"]


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    """The loss is finite, its slope is not."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return (output - output).pow(2).sum(1).sqrt().mean() + 1.0

    with pytest.raises(BrainsurgeonError, match=r"gradient of '0\.weight' is NaN or infinite"):
        prune(model(), data(), 0.5, "wf", loss, **QUICK)


def test_a_method_that_needs_curvature_after_one_that_needs_none() -> None:
    """The sample loss is taken on the same samples either way, and no gradient is taken that nobody asks for."""
    surgery = Surgery(model(), data(), **QUICK)
    taken: list[str] = []
    surgery._callback = lambda event: taken.append(event.stage)
    assert surgery.prune(0.5, "mp").pruned == 36
    assert "gradients" not in taken
    assert_same(surgery.prune(0.5, "wf"), prune(model(), data(), 0.5, "wf", **QUICK))
    assert "gradients" in taken


def test_a_bad_call_leaves_the_model_as_it_was() -> None:
    network = model().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(BrainsurgeonError):
        prune(network, data(), 0.5, "cbs", budget={"*": 0.1}, in_place=True, **QUICK)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_errors_are_value_errors() -> None:
    """So that callers need not know of this package to catch them."""
    with pytest.raises(ValueError, match="sparsity"):
        prune(model(), data(), 2.0)


@pytest.mark.parametrize("method", ["cbs", "mp+cbs-u", "wf", "rmp", "staged"])
@pytest.mark.parametrize("before", ["wf", "cbs", "mp+cbs-u"])
@pytest.mark.parametrize("iterative", [False, True], ids=["factored", "by conjugate gradients"])
def test_what_a_call_gives_does_not_depend_on_earlier_ones(
    before: str, method: str, iterative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, though factors and diagonals are shared, and solves could start where the last one ended."""
    if iterative:
        monkeypatch.setattr(compensation, "FACTOR_BYTES", 0)
        monkeypatch.setattr(compensation, "FACTOR_SHARE", 0.0)
        monkeypatch.setattr(conjugate, "TOLERANCE", 0.1)
        monkeypatch.setattr(compensation, "conjugate_gradients", partial(conjugate_gradients, tolerance=0.1))
    settings: dict[str, Any] = {"schedule": 2, "max_gradients": 200} if method == "staged" else QUICK
    settings = {key: value for key, value in settings.items() if key != "progress"}
    if method in ("cbs", "mp+cbs-u", "wf"):  # an update that is judged to be of no use would hide what it was
        settings["update_scale"] = 1.0
    alone = Surgery(model(), data(), progress=False).prune(0.6, method, **settings)
    surgery = Surgery(model(), data(), progress=False)
    surgery.prune(0.5, before, num_gradients=8)
    surgery.prune(0.62, before, num_gradients=8, seed=4)
    assert_same(surgery.prune(0.6, method, **settings), alone)


def test_methods_with_the_same_settings_share_one_examination() -> None:
    surgery = Surgery(model(), data(), num_gradients=8)
    method = make_method("wf", {"num_gradients": 8})
    found = surgery.examined(method.examining, True)
    for name in ("wf", "cbs", "mp"):
        surgery.prune(0.5, name)
    assert surgery.examined(method.examining, True) is found
    assert surgery.examined(method.examining, False) is found  # curvature that is there does no harm
    other = make_method("wf", {"num_gradients": 9})
    assert surgery.examined(other.examining, True) is not found
    assert found.before.loss() == pytest.approx(nn.functional.cross_entropy(model()(data()[0]), data()[1]).item())
    assert found.quadratic is not None
    assert found.quadratic.size == 72
    assert "gradients" in found.seconds


def test_an_iterator_is_read_once_and_serves_every_method() -> None:
    """Its batches are kept as they come, so that one method after the other sees all of them."""
    inputs, labels = data()
    read: list[int] = []

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, 40, 8):
            read.append(start)
            yield inputs[start : start + 8], labels[start : start + 8]

    surgery = Surgery(model(), batches(), progress=False)
    settled = Surgery(model(), list(batches()), progress=False)
    read.clear()
    for method, settings in (
        ("wf", {"num_gradients": 16}),
        ("cbs", {"num_gradients": 40}),
        ("staged", {"schedule": 2, "max_gradients": 200}),
    ):
        assert_same(surgery.prune(0.6, method, **settings), settled.prune(0.6, method, **settings))
    assert read == [0, 8, 16, 24, 32]


@pytest.mark.parametrize("method", ["cbs", "rmp", "wf", "staged", "cbs-s"])
def test_without_data_a_method_that_needs_samples_is_refused_in_words(method: str) -> None:
    with pytest.raises(BrainsurgeonError, match=f"'{method}' needs training samples: give data .only `mp` needs none"):
        prune(model(), None, 0.5, method)


def test_magnitude_needs_no_data() -> None:
    bare = prune(model(), None, 0.5, "mp")
    assert bare.pruned == 36
    assert (bare.loss_before, bare.loss_after, bare.predicted_change) == (None, None, None)
    for name, mask in prune(model(), data(), 0.5, "mp", **QUICK).masks.items():
        assert torch.equal(mask, bare.masks[name])
    assert "no sample loss: there was no data" in bare.summary()


def test_the_seed_of_a_call_takes_the_place_of_the_surgerys() -> None:
    surgery = Surgery(model(), data(), seed=3, num_gradients=8, progress=False)
    assert surgery.prune(0.5, "rmp", num_draws=2, seed=5).settings["seed"] == 5
    masks = [surgery.prune(0.5, "rmp", num_draws=2, seed=seed).masks["0.weight"] for seed in range(6)]
    assert any(not torch.equal(mask, masks[0]) for mask in masks[1:])
    assert_same(surgery.prune(0.5, "rmp", seed=3), surgery.prune(0.5, "rmp"))


def test_a_model_that_cannot_be_copied_is_refused_in_words() -> None:
    locked = model()
    locked.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(BrainsurgeonError, match=r"the model cannot be copied .*copy\.deepcopy"):
        prune(locked, data(), 0.5, "wf", **QUICK)


def test_one_examination_serves_many_methods_and_sparsities() -> None:
    """The same gradients give what separate calls give, in any order."""
    quick: dict[str, Any] = {"num_gradients": 24, "damping": 1e-2, "progress": False}
    surgery = Surgery(model(), data(), **quick)
    for method, sparsity in (("wf", 0.5), ("cbs", 0.8), ("mp", 0.3), ("wf", 0.5)):
        settings: dict[str, Any] = {"num_draws": 6} if method == "cbs" else {}
        together = surgery.prune(sparsity, method, **settings)
        assert_same(together, prune(model(), data(), sparsity, method, **quick, **settings))


@pytest.mark.parametrize("method", ["gradual", "staged"])
def test_a_run_without_time_goes_on_from_the_network_it_was_given(method: str) -> None:
    """Its masks stay, though they are not of its smallest weights; the next to go are the smallest of those it kept."""
    generator = torch.Generator().manual_seed(0)
    given = changed(lambda m: [p.add_(0.3 * torch.randn(p.shape, generator=generator)) for p in m.parameters()])
    surgery = Surgery(model(), data(), progress=False)
    masks = {name: given.get_parameter(name).abs() > 0.5 for name in surgery.weights.names}
    with torch.no_grad():
        for name, mask in masks.items():
            given.get_parameter(name)[mask] = 0.0
    before = sum(int(mask.sum()) for mask in masks.values())
    result = surgery.prune(0.8, method, max_seconds=1e-6, start=Start(given, masks))
    assert before < result.pruned
    kept = torch.cat([given.get_parameter(name).detach()[~mask].abs() for name, mask in masks.items()])
    limit = float(kept.sort().values[result.pruned - before - 1])
    for name, value in given.state_dict().items():
        expected = value if name not in masks else value.masked_fill(value.abs() <= limit, 0.0)
        assert torch.equal(result.model.state_dict()[name], expected)
    assert all(bool(result.masks[name][mask].all()) for name, mask in masks.items())
    assert "the smallest weights were removed from the network before" in "\n".join(result.notes)


def test_a_run_without_time_keeps_the_pattern_of_the_network_it_was_given() -> None:
    given = trained()
    sums = given[0].weight.detach().abs().reshape(8, 4, 2, 4).sum((1, 3))  # type: ignore[index]
    gone = (sums >= sums.flatten().sort().values[-4])[:, None, :, None].expand(8, 4, 2, 4).reshape(32, 8)
    with torch.no_grad():
        given[0].weight[gone] = 0.0  # type: ignore[index]
    surgery = Surgery(trained(), rings(0), include="0.*", progress=False)
    start = Start(given, {"0.weight": gone})
    result = surgery.prune(0.5, "gradual", pattern="4x4", max_seconds=1e-6, start=start)
    found = result.masks["0.weight"]
    assert set(found.reshape(8, 4, 2, 4).sum((1, 3)).unique().tolist()) == {0, 16}
    assert bool(found[gone].all())


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("method", ["staged", "auto"])
def test_a_language_model_with_a_cache_is_pruned_as_one_without(method: str, padded: bool) -> None:
    pytest.importorskip("transformers")
    from language_folders import small_model

    tokens = torch.randint(40, (24, 10), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens)
    mask[::2, :4] = 0
    data = {"input_ids": tokens, "labels": tokens} | ({"attention_mask": mask} if padded else {})
    models = []
    for cached in (True, False):
        model = small_model()
        model.config.use_cache = cached
        result = Surgery(model, data, "model", progress=False).prune(0.5, method, max_gradients=200)
        assert model.config.use_cache == result.model.config.use_cache == cached
        models.append(result.model.state_dict())
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())
