"""Time that was measured, runtime by runtime; where one is missing or cannot help, the reason."""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.checks import first_line
from brainsurgeon.network.loss import call

RUNTIMES = ("torch", "torch-csr", "onnxruntime", "openvino", "openvino-sparse")
DENSE_TWIN = {"torch-csr": "torch", "openvino-sparse": "openvino"}
"""What a sparse runtime is compared with: the same one, dense."""
WARM_UP, IN_A_ROW, LEAST = 3, 5, 15


@dataclass(frozen=True)
class Latency:
    """The time of a batch in one runtime, of many runs the fastest tenth; None where it could not be measured."""

    runtime: str
    milliseconds: float | None
    sparse: bool = False
    note: str = ""

    def __str__(self) -> str:
        """Give one line of a table."""
        told = "not measured" if self.milliseconds is None else f"{self.milliseconds:.3f} ms"
        return f"{self.runtime:<16}{told:>12}" + (f"  ({self.note})" if self.note else "")


@dataclass(frozen=True)
class _Prepared:
    """A runtime ready to run the example, or the reason why it is not."""

    runtime: str
    run: Callable[[], Any] | None
    sparse: bool = False
    note: str = ""


def measure(
    model: nn.Module, example: Any, masks: Mapping[str, Tensor], runtimes: Sequence[str], seconds: float
) -> tuple[Latency, ...]:
    """Time the runtimes on the example, `seconds` each; what is not installed raises, what cannot help is said.

    They run in turn, batch by batch: a machine that is busy for a while is busy for all of them.
    """
    for runtime in runtimes:
        if runtime not in RUNTIMES:
            raise BrainsurgeonError(f"unknown runtime {runtime!r}: give some of {', '.join(RUNTIMES)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if not {"torch", "torch-csr"}.issuperset(runtimes):
            from brainsurgeon.export.onnx import to_onnx

            to_onnx(model, example, path, dynamic_batch=False)
        prepared = [_prepare(model, example, masks, runtime, path) for runtime in runtimes]
        times = _times([one.run for one in prepared if one.run is not None], seconds)
    found = iter(times)
    return tuple(
        Latency(one.runtime, None if one.run is None else next(found), one.sparse, one.note) for one in prepared
    )


def in_turn(models: Sequence[nn.Module], example: Any, seconds: float) -> list[float]:
    """Return the milliseconds of each model on the example in PyTorch, timed in turn as runtimes are."""
    return _times([_torch(copy.deepcopy(model), example) for model in models], seconds)


def _prepare(model: nn.Module, example: Any, masks: Mapping[str, Tensor], runtime: str, path: Path) -> _Prepared:
    if runtime == "torch":
        return _Prepared(runtime, _torch(copy.deepcopy(model), example), note="dense kernels")
    if runtime == "torch-csr":
        return _csr(model, example, masks)
    if runtime == "onnxruntime":
        note = "dense kernels: zeros are multiplied like any number"
        return _Prepared(runtime, _onnxruntime(path, example), note=note)
    if runtime == "openvino":
        return _Prepared(runtime, _openvino(path, example, None), note="dense kernels")
    rate = min(float(mask.float().mean()) for mask in masks.values())
    return _Prepared(runtime, _openvino(path, example, rate), True, f"sparse weight decompression, {_amx()}")


def _csr(model: nn.Module, example: Any, masks: Mapping[str, Tensor]) -> _Prepared:
    from brainsurgeon.export.csr import to_sparse_modules

    sparse, changed = to_sparse_modules(model, masks)
    if not changed:
        reason = "no pruned linear layer or 1×1 convolution, and PyTorch has no sparse kernel for others"
        return _Prepared("torch-csr", None, True, reason)
    run = _torch(sparse, example)
    try:
        run()
    except (NotImplementedError, RuntimeError) as error:  # its kernels are not there for every type of numbers
        return _Prepared("torch-csr", None, True, f"PyTorch's sparse kernels do not run it: {first_line(error)}")
    return _Prepared("torch-csr", run, True, f"{len(changed)} of {len(masks)} pruned layers as CSR, the others dense")


def _torch(model: nn.Module, example: Any) -> Callable[[], Any]:
    model.eval()
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())

    def run() -> None:
        with torch.inference_mode():
            call(model, example)
        if on_gpu:  # which answers before it has done its work
            torch.cuda.synchronize()

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
    from brainsurgeon.samples.batches import tensors_of

    inputs = [tensor.cpu().numpy() for tensor in tensors_of(example)]
    return lambda: request.infer(inputs)


def _times(runs: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Return the time of each run in milliseconds, taken in turn; a run finds the caches as it left them.

    The fastest tenth counts: what slows a run down beyond it is something else on the machine.
    """
    for run in runs:
        for _ in range(WARM_UP):
            run()
    times: list[list[float]] = [[] for _ in runs]
    while runs and (len(times[0]) < LEAST or sum(map(sum, times)) < seconds * len(runs)):
        for run, own in zip(runs, times, strict=True):
            run()
            for _ in range(IN_A_ROW):
                start = time.perf_counter()
                run()
                own.append(time.perf_counter() - start)
    return [1000 * statistics.quantiles(own, n=10)[0] for own in times]


def _amx() -> str:
    """Say whether OpenVINO's sparse weights can help on this machine."""
    try:
        found = "amx_int8" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return "which needs 8-bit linear layers and a processor with AMX"
    return "which needs 8-bit linear layers" + ("" if found else " and AMX, which this processor has not")
