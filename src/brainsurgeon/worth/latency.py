"""Time that was measured, runtime by runtime; where one is missing or cannot help, the reason."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.loss import call

RUNTIMES = ("torch", "torch-csr", "onnxruntime", "openvino", "openvino-sparse")
DENSE_TWIN = {"torch-csr": "torch", "openvino-sparse": "openvino"}
"""What a sparse runtime is compared with: the same one, dense."""
WARM_UP, LEAST = 3, 5


@dataclass(frozen=True)
class Latency:
    """The median time of a batch in one runtime; None with the reason where it could not be measured."""

    runtime: str
    milliseconds: float | None
    sparse: bool = False
    note: str = ""

    def __str__(self) -> str:
        """Give one line of a table."""
        told = "not measured" if self.milliseconds is None else f"{self.milliseconds:.3f} ms"
        return f"{self.runtime:<16}{told:>12}" + (f"  ({self.note})" if self.note else "")


def measure(model: nn.Module, example: Any, masks: Mapping[str, Tensor], runtime: str, seconds: float) -> Latency:
    """Time one runtime on the example; what is not installed is said, not passed over."""
    if runtime not in RUNTIMES:
        raise BrainsurgeonError(f"unknown runtime {runtime!r}: give some of {', '.join(RUNTIMES)}")
    if runtime == "torch":
        return Latency(runtime, _median(_torch(model, example), seconds), note="dense kernels")
    if runtime == "torch-csr":
        return _csr(model, example, masks, seconds)
    with _onnx_file(model, example) as path:
        if runtime == "onnxruntime":
            note = "dense kernels: zeros are multiplied like any number"
            return Latency(runtime, _median(_onnxruntime(path, example), seconds), note=note)
        sparse = runtime == "openvino-sparse"
        rate = min(float(mask.float().mean()) for mask in masks.values()) if sparse else None
        note = f"sparse weight decompression, {_amx()}" if sparse else "dense kernels"
        return Latency(runtime, _median(_openvino(path, example, rate), seconds), sparse, note)


def _csr(model: nn.Module, example: Any, masks: Mapping[str, Tensor], seconds: float) -> Latency:
    from brainsurgeon.export.csr import to_sparse_modules

    sparse, changed = to_sparse_modules(model, masks)
    if not changed:
        return Latency(
            "torch-csr", None, True, "no pruned linear layer or 1×1 convolution: PyTorch has no kernel for others"
        )
    note = f"{len(changed)} of {len(masks)} pruned layers as CSR, the others dense"
    return Latency("torch-csr", _median(_torch(sparse, example), seconds), True, note)


def _torch(model: nn.Module, example: Any) -> Callable[[], Any]:
    was_training = model.training
    model.eval()

    def run() -> Any:
        with torch.inference_mode():
            return call(model, example)

    run()
    model.train(was_training)
    return run


def _onnxruntime(path: Path, example: Any) -> Callable[[], Any]:
    from brainsurgeon.export.onnx import feed, session

    opened = session(path, torch.get_num_threads())
    inputs = feed(opened, example)
    return lambda: opened.run(None, inputs)


def _openvino(path: Path, example: Any, rate: float | None) -> Callable[[], Any]:
    try:
        import openvino
    except ModuleNotFoundError as error:
        raise BrainsurgeonError("timing OpenVINO needs it: pip install 'brainsurgeon[openvino]'") from error
    settings: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # else it takes bfloat16 where the processor has it
    }
    if rate is not None:
        settings["CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE"] = rate
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    from brainsurgeon.batches import tensors_of

    inputs = [tensor.numpy() for tensor in tensors_of(example)]
    return lambda: request.infer(inputs)


@contextmanager
def _onnx_file(model: nn.Module, example: Any) -> Iterator[Path]:
    from brainsurgeon.export.onnx import to_onnx

    with tempfile.TemporaryDirectory() as folder:
        yield to_onnx(model, example, Path(folder) / "model.onnx", dynamic_batch=False).path


def _median(run: Callable[[], Any], seconds: float) -> float:
    """Return the median time of a run in milliseconds."""
    for _ in range(WARM_UP):
        run()
    times: list[float] = []
    while len(times) < LEAST or sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def _amx() -> str:
    """Say whether OpenVINO's sparse weights can help on this machine."""
    try:
        found = "amx_int8" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return "which needs 8-bit linear layers and a processor with AMX"
    return "which needs 8-bit linear layers" + ("" if found else " and AMX, which this processor has not")
