"""What pruning buys: counts that can be worked out by hand, and times that were taken."""

from __future__ import annotations

import time

import pytest
import torch
from cases import CASES, TABLE, Case
from torch import nn

from brainsurgeon import BrainsurgeonError, prune
from brainsurgeon.cost import Latency, Worth, worth
from brainsurgeon.cost import latency as latency_module
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.network.zeros import set_zeros
from brainsurgeon.paper.models import build


def test_multiply_adds_of_linear_layers_are_their_weights() -> None:
    model = build("mlpnet")
    masks = {"fc1.weight": torch.zeros(40, 784, dtype=torch.bool)}
    masks["fc1.weight"][:10] = True
    set_zeros(model, masks)
    assert count_multiply_adds(model, torch.zeros(3, 1, 28, 28), masks) == (3 * 32_360, 3 * (32_360 - 7840))


def test_multiply_adds_of_convolutions_count_every_place() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 4, 1, groups=2))
    masks = {"0.weight": torch.zeros(4, 2, 3, 3, dtype=torch.bool)}
    masks["0.weight"][:1] = True
    set_zeros(model, masks)
    dense, sparse = count_multiply_adds(model, torch.zeros(1, 2, 6, 6), masks)
    first, second = 72 * 16, 4 * 2 * 16
    assert (dense, sparse) == (first + second, first * 3 // 4 + second)


def test_multiply_adds_of_recurrent_layers_count_every_step() -> None:
    model = nn.LSTM(3, 5, batch_first=True)
    masks = {"weight_ih_l0": torch.ones(20, 3, dtype=torch.bool)}
    set_zeros(model, masks)
    inputs, hidden = 2 * 4 * 20 * 3, 2 * 4 * 20 * 5
    assert count_multiply_adds(model, torch.zeros(2, 4, 3), masks) == (inputs + hidden, hidden)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_every_kind_of_model_is_counted(case: Case) -> None:
    """At the sparsity r of a layer a share r of its multiply-adds is saved, whatever kind of layer it is."""
    result = prune(case.model(), case.data(), 0.6, "mp", case.loss, num_gradients=1, progress=False, budget="uniform")
    data = case.data()
    dense, sparse = count_multiply_adds(result.model, data["x"] if isinstance(data, dict) else data[0], result.masks)
    assert 0 < sparse < 0.8 * dense


def test_all_is_told_and_the_times_are_taken() -> None:
    case = CASES["linear"]
    result = prune(case.model(), case.data(), 0.6, "mp", num_gradients=1, progress=False)
    found = worth(result.model, case.data()[0], result.masks, seconds=0.01)
    assert (found.parameters, found.nonzero) == (83, 83 - result.pruned)
    assert [latency.runtime for latency in found.latencies] == ["torch", "torch-csr"]
    assert all(latency.milliseconds and latency.milliseconds > 0 for latency in found.latencies)
    for words in ("parameters", "on disk", "multiply-adds", "torch-csr", "times the speed of torch"):
        assert words in found.summary()
    assert found.to_dict()["latencies"][0]["runtime"] == "torch"


def test_without_an_example_only_what_needs_none_is_told() -> None:
    result = prune(CASES["linear"].model(), CASES["linear"].data(), 0.6, "mp", num_gradients=1, progress=False)
    found = worth(result.model)
    assert found.bytes_dense > 0
    assert found.latencies == ()


def test_the_verdict_is_plain() -> None:
    def told(*latencies: Latency) -> str:
        return "\n".join(Worth(10, 5, 100, 50, 10, 5, 1, latencies).verdicts())

    dense = Latency("torch", 2.0)
    assert "torch-csr: a speed-up: 2.00 times" in told(dense, Latency("torch-csr", 1.0, sparse=True))
    assert "torch-csr: no speed-up: 0.50 times" in told(dense, Latency("torch-csr", 4.0, sparse=True))
    assert "no speed-up: 1.03 times" in told(dense, Latency("torch-csr", 1.95, sparse=True))
    assert "no sparse runtime was measured" in told(dense, Latency("torch-csr", None, sparse=True))
    three = told(dense, Latency("torch-csr", 1.0, sparse=True), Latency("onnxruntime", 0.5))
    assert "a speed-up: 2.00 times" in three
    assert "the fastest of all is dense: onnxruntime with 0.5 ms" in three
    assert "fastest of all" not in told(dense, Latency("torch-csr", 1.0, sparse=True))
    assert "openvino-sparse: no speed-up: 1.00 times the speed of openvino" in told(
        dense, Latency("openvino", 1.0), Latency("openvino-sparse", 1.0, sparse=True)
    )


def test_each_time_is_of_its_own_run() -> None:
    short, long = latency_module._times([lambda: time.sleep(0.002), lambda: time.sleep(0.02)], 0.01)
    assert 2 <= short < long
    assert long >= 20


def test_a_model_without_a_layer_that_csr_can_do_is_told_so() -> None:
    case = CASES["conv2d"]
    result = prune(case.model(), case.data(), 0.6, "mp", num_gradients=1, progress=False, include="0.weight")
    found = worth(result.model, case.data()[0], result.masks, ("torch-csr",), 0.01)
    assert found.latencies[1].milliseconds is None
    assert "no pruned linear layer or 1×1 convolution" in found.summary()


def test_an_unknown_runtime_is_refused() -> None:
    case = CASES["linear"]
    result = prune(case.model(), case.data(), 0.6, "mp", num_gradients=1, progress=False)
    with pytest.raises(BrainsurgeonError, match="unknown runtime 'magic'"):
        worth(result.model, case.data()[0], runtimes=("magic",))


def test_onnxruntime_is_timed() -> None:
    pytest.importorskip("onnxruntime", reason="needs brainsurgeon[onnx]")
    case = CASES["linear"]
    result = prune(case.model(), case.data(), 0.6, "mp", num_gradients=1, progress=False)
    assert worth(result.model, case.data()[0], result.masks, ("onnxruntime",), 0.01).latencies[0].milliseconds


def test_openvino_is_timed_beside_its_dense_twin() -> None:
    pytest.importorskip("openvino", reason="needs brainsurgeon[openvino]")
    case = CASES["linear"]
    result = prune(case.model(), case.data(), 0.6, "mp", num_gradients=1, progress=False)
    found = worth(result.model, case.data()[0], result.masks, ("openvino-sparse",), 0.01)
    assert [latency.runtime for latency in found.latencies] == ["openvino", "openvino-sparse"]
    assert found.speed_up("openvino-sparse")
