"""What a method needs of memory: said before the work starts, with settings that do fit."""

import ast
from typing import Any

import pytest
import torch
from torch import nn

from brainsurgeon.network.footprint import Footprint
from brainsurgeon.network.memory import DoesNotFitError
from brainsurgeon.network.weights import Layer, PrunableWeights, find_weights
from brainsurgeon.pruning import fitting
from brainsurgeon.pruning.fitting import check_memory
from brainsurgeon.pruning.memory import memory_needs
from brainsurgeon.pruning.methods import NAMES, make_method
from brainsurgeon.pruning.one_shot import OneShot

CPU = torch.device("cpu")
MODEL_BYTES = 4 * (24 * 12 + 3 * 24)


def weights() -> PrunableWeights:
    return find_weights(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)))


def total(method: str, **settings: Any) -> int:
    return sum(memory_needs(make_method(method, settings), weights(), MODEL_BYTES).values())


def test_gradients_are_counted_by_their_number_and_type() -> None:
    parts = memory_needs(make_method("cbs", {"num_gradients": 100}), weights(), MODEL_BYTES)
    assert parts["gradients"] == 100 * 360 * 4
    half = memory_needs(make_method("cbs", {"num_gradients": 100, "dtype": torch.bfloat16}), weights(), MODEL_BYTES)
    assert half["gradients"] == 100 * 360 * 2
    assert parts["copies of the model"] == 2 * MODEL_BYTES


def test_the_factor_is_of_the_rows_or_of_the_widest_block() -> None:
    for rows, blocks, side in ((100, "model", 100), (1000, "model", 360), (1000, "layer", 288), (1000, 50, 50)):
        parts = memory_needs(make_method("cbs", {"num_gradients": rows, "blocks": blocks}), weights(), MODEL_BYTES)
        assert parts["factor"] == 2 * 8 * side**2


def test_stages_count_their_gram_matrices_unless_they_take_none() -> None:
    parts = {
        kind: memory_needs(make_method("staged", {"curvature": kind}), weights(), MODEL_BYTES)
        for kind in ("auto", "gram", "fisher")
    }
    assert parts["auto"]["Gram matrices"] == parts["gram"]["Gram matrices"] == 16 * (12**2 + 24**2)
    assert "Gram matrices" not in parts["fisher"]
    assert "gradients" not in parts["gram"]
    assert parts["fisher"]["gradients"] >= parts["auto"]["gradients"] > 0  # two kinds share the samples


def test_a_method_without_gradients_needs_no_memory_for_them() -> None:
    parts = memory_needs(make_method("mp"), weights(), MODEL_BYTES)
    assert parts.keys() == {"torch", "copies of the model", "masks and vectors"}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_says_what_it_needs(name: str) -> None:
    parts = memory_needs(make_method(name), weights(), MODEL_BYTES)
    assert all(isinstance(value, int) and value > 0 for value in parts.values())
    assert parts["copies of the model"] >= MODEL_BYTES


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_said_to_fit_is_the_most_that_does(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    free = total("cbs", num_gradients=40, dtype=dtype)
    monkeypatch.setattr(fitting, "available_bytes", lambda device: free)

    def check(rows: int) -> None:
        check_memory(make_method("cbs", {"num_gradients": rows, "dtype": dtype}), weights(), MODEL_BYTES, CPU)

    check(40)
    with pytest.raises(DoesNotFitError, match="What would fit: num_gradients=40 or fewer"):
        check(41)
    with pytest.raises(DoesNotFitError, match="num_gradients=40 or fewer"):
        check(5000)


def test_half_precision_is_a_remedy_only_where_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    method = make_method("cbs", {"num_gradients": 100})
    assert isinstance(method, OneShot)
    enough = total("cbs", num_gradients=100, dtype=torch.bfloat16)
    for free, named in ((enough, True), (enough - 1, False)):
        monkeypatch.setattr(fitting, "available_bytes", lambda device, free=free: free)
        with pytest.raises(DoesNotFitError) as refused:
            check_memory(method, weights(), MODEL_BYTES, CPU)
        assert ("dtype=bfloat16" in str(refused.value)) == named


@pytest.mark.parametrize("name", ["mp", "cbs", "staged", "layerwise", "gradual", "auto"])
def test_where_nothing_fits_nothing_is_advised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "available_bytes", lambda device: 1000)
    with pytest.raises(DoesNotFitError, match=r"and [\d.]+ \w+ are free on cpu\. Nothing that it can be told"):
        check_memory(make_method(name), weights(), MODEL_BYTES, CPU)
    monkeypatch.setattr(fitting, "available_bytes", lambda device: None)
    check_memory(make_method(name), weights(), MODEL_BYTES, CPU)


SAMPLE = Footprint(sample=4000, passing=20_000, samples=50_000, resident=False)


def large() -> PrunableWeights:
    """Layers of very different sizes; nothing is made of them."""
    layers, offset = [], 0
    for number, (rows, columns) in enumerate(((64, 300), (4096, 4096), (10, 4096))):
        layers.append(Layer(f"{number}.weight", (rows, columns), offset, rows * columns))
        offset += rows * columns
    return PrunableWeights(tuple(layers))


@pytest.mark.parametrize("name", ["mp", "cbs", "wf", "staged", "layerwise", "gradual", "auto"])
@pytest.mark.parametrize("share", [0.97, 0.6, 0.3])
def test_what_is_advised_is_accepted_when_it_is_followed(
    name: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, method, some = 4 * large().size, make_method(name), large()
    free = int(share * sum(memory_needs(method, some, model, SAMPLE).values()))
    monkeypatch.setattr(fitting, "available_bytes", lambda device: free)
    with pytest.raises(DoesNotFitError) as refused:
        check_memory(method, some, model, CPU, SAMPLE)
    _, found, advice = str(refused.value).partition("What would fit: ")
    for remedy in advice.split("; or ") if found else ():
        key, _, value = remedy.partition("=")
        followed, kept = method, some
        if key == "num_gradients":
            followed = make_method(method, {key: int(value.split()[0])})
        elif key == "dtype":
            followed = make_method(method, {key: torch.bfloat16})
        elif key == "max_samples":
            followed = make_method(method, {key: int(value)})
        elif key == "method":
            followed = make_method(value.strip('"'))
        else:
            assert key == "exclude"
            kept = PrunableWeights(tuple(la for la in some.layers if la.name not in ast.literal_eval(value)))
        check_memory(followed, kept, model, CPU, SAMPLE)


def test_samples_that_are_kept_and_passes_are_counted() -> None:
    for name in ("cbs", "staged", "layerwise", "gradual", "auto"):
        method = make_method(name)
        with_samples = memory_needs(method, weights(), MODEL_BYTES, SAMPLE)
        assert with_samples["samples"] in {4000 * count for count in (1000, 5000, 20_000)}
        assert with_samples["passes"] >= 16 * 20_000
    half = memory_needs(make_method("gradual", {"max_samples": 300}), weights(), MODEL_BYTES, SAMPLE)
    assert half["samples"] == 300 * 4000


def test_auto_needs_what_its_largest_candidate_needs() -> None:
    model = 4 * large().size
    of = {n: memory_needs(make_method(n), large(), model, SAMPLE) for n in ("auto", "layerwise", "gradual")}
    most = max(sum(of["layerwise"].values()), sum(of["gradual"].values()))
    assert most <= sum(of["auto"].values()) <= most + 3 * model + 20_000 * 4000 + of["auto"]["other candidates"]
    assert 0 < of["auto"]["other candidates"] < 0.5 * most


def test_layerwise_needs_no_room_for_layers_that_it_does_not_solve() -> None:
    seen = Footprint(linear=frozenset({"0.weight", "2.weight"}))
    some, all_ = (memory_needs(make_method("layerwise"), large(), 4 * large().size, s) for s in (seen, Footprint()))
    assert some["one layer"] < 0.05 * all_["one layer"]
    assert some["moments"] == all_["moments"]


def test_a_training_step_counts_a_teacher_where_samples_are_few() -> None:
    few, many = (Footprint(samples=n, passing=1000, featured=500) for n in (2000, 20_000))
    passes = [memory_needs(make_method("gradual"), large(), 4 * large().size, s)["passes"] for s in (few, many)]
    assert passes == [64 * (800 + 4.5 * 500), 64 * 800]
    tokens = Footprint(samples=20_000, passing=1000, tokens=True)
    assert memory_needs(make_method("gradual"), large(), 4 * large().size, tokens)["passes"] == 8 * 800


def test_gradients_of_every_step_of_a_recurrent_layer_are_counted() -> None:
    one, many = (
        memory_needs(make_method("wf"), weights(), MODEL_BYTES, Footprint(passing=8, steps=n)) for n in (1, 28)
    )
    assert many["passes"] > 10 * one["passes"]
