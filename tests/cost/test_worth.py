"""What pruning buys, in one table."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import nn

from brainsurgeon import BrainsurgeonError, prune
from brainsurgeon.cost import Latency, Worth, worth
from brainsurgeon.network.zeros import set_zeros


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


def test_a_model_without_a_layer_that_csr_can_do_is_told_so() -> None:
    case = CASES["conv2d"]
    result = prune(case.model(), case.data(), 0.6, "mp", num_gradients=1, progress=False, include="0.weight")
    found = worth(result.model, case.data()[0], result.masks, ("torch-csr",), 0.01)
    assert found.latencies[1].milliseconds is None
    assert "no pruned linear layer or 1×1 convolution" in found.summary()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_that_sparse_kernels_do_not_have_are_told(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).to(dtype)
    masks = {"0.weight": torch.rand(8, 8) < 0.5}
    set_zeros(model, masks)
    found = worth(model, torch.ones(4, 8, dtype=dtype), masks, ("torch", "torch-csr"), 0.01)
    dense, sparse = found.latencies
    assert dense.milliseconds is not None
    assert sparse.milliseconds is not None or "sparse kernels do not run it" in sparse.note


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
