"""What a method needs of memory, part by part."""

import pytest
import torch
from memory_cases import MODEL_BYTES, SAMPLE, large, weights

from brainsurgeon.network.footprint import Footprint
from brainsurgeon.pruning.memory import memory_needs, rows_of
from brainsurgeon.pruning.methods import NAMES, make_method


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


def test_a_step_that_is_recorded_holds_its_passes_twice() -> None:
    plain, recorded = (Footprint(samples=20_000, passing=1000, on_gpu=on_gpu) for on_gpu in (False, True))
    needs = [memory_needs(make_method("gradual"), weights(), MODEL_BYTES, sample) for sample in (plain, recorded)]
    assert needs[1]["passes"] == 2 * needs[0]["passes"]
    assert "recorded steps" not in needs[0]
    texts = [Footprint(samples=20_000, passing=1000, tokens=True, on_gpu=on_gpu) for on_gpu in (False, True)]
    plain_texts, on_gpu = (memory_needs(make_method("gradual"), weights(), MODEL_BYTES, sample) for sample in texts)
    assert on_gpu == plain_texts  # their steps are not recorded
    assert needs[1]["recorded steps"] > 8 * 4 * weights().size


def test_passes_of_gradients_are_those_that_are_taken_at_once() -> None:
    """Of groups of samples too; no more than a few where a pass is large."""
    method = make_method("wf", {"gradient_batch": 16, "num_gradients": 50})
    small, large = (
        memory_needs(method, weights(), MODEL_BYTES, Footprint(passing=passing, samples=10_000, on_gpu=True))["passes"]
        for passing in (1 << 20, 1 << 26)
    )
    assert small == 50 * 16 * 3 << 20
    assert large <= 8 << 30


def test_gradients_of_every_step_of_a_recurrent_layer_are_counted() -> None:
    one, many = (
        memory_needs(make_method("wf"), weights(), MODEL_BYTES, Footprint(passing=8, steps=n)) for n in (1, 28)
    )
    assert many["passes"] > 10 * one["passes"]


def test_no_more_gradients_are_counted_than_the_data_give() -> None:
    method = make_method("cbs", {"num_gradients": 1000})
    rows = {n: rows_of(method, weights(), Footprint(samples=n)) for n in (0, 7, 1000, 5000)}
    assert rows == {0: 1000, 7: 7, 1000: 1000, 5000: 1000}  # 0: there are no data to look at
    grouped = make_method("cbs", {"num_gradients": 1000, "gradient_batch": 8})
    assert [rows_of(grouped, weights(), Footprint(samples=n)) for n in (3, 80)] == [1, 10]
    exact = make_method("cbs", {"num_gradients": 1000, "fisher": "exact"})  # a row for each output of a sample
    assert rows_of(exact, weights(), Footprint(samples=7)) == 1000
    assert rows_of(make_method("staged"), weights(), Footprint(samples=50)) <= 40
