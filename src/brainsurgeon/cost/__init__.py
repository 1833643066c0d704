"""What pruning buys: parameters, bytes, multiply-adds, and time that was measured."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from brainsurgeon.cost.latency import DENSE_TWIN, RUNTIMES, Latency, measure
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.files import save
from brainsurgeon.network.names import unwrapped
from brainsurgeon.network.zeros import check_masks, count_zeros, zero_masks

__all__ = ["RUNTIMES", "Latency", "Worth", "worth"]

GAIN = 1.05
"""A sparse run that is less than this much faster is no speed-up: so much a clock may err."""


@dataclass(frozen=True)
class Worth:
    """What a pruned model costs beside the dense one of the same shape; multiply-adds and times are of one batch."""

    parameters: int
    nonzero: int
    bytes_dense: int
    bytes_compressed: int
    multiply_adds: int
    multiply_adds_sparse: int
    batch: int
    latencies: tuple[Latency, ...] = ()

    def speed_up(self, runtime: str) -> float | None:
        """Return how many times faster a sparse runtime is than its dense twin; None where not both were measured."""
        times = {latency.runtime: latency.milliseconds for latency in self.latencies}
        dense, sparse = times.get(DENSE_TWIN[runtime]), times.get(runtime)
        return None if not dense or not sparse else dense / sparse

    def summary(self) -> str:
        """Return all of it in words."""
        lines = [
            f"parameters    {self.parameters:>14,}, {self.nonzero:,} of them not zero",
            f"on disk       {self.bytes_dense:>14,} bytes dense, {self.bytes_compressed:,} compressed "
            f"({self.bytes_dense / self.bytes_compressed:.1f} times smaller)",
            f"multiply-adds {self.multiply_adds:>14,} dense, {self.multiply_adds_sparse:,} that are not with a zero "
            f"(batch of {self.batch})",
        ]
        lines += [f"{latency}" for latency in self.latencies]
        return "\n".join([*lines, *self.verdicts()])

    def verdicts(self) -> list[str]:
        """Say plainly where there is a speed-up, and where there is none."""
        verdicts = []
        for latency in self.latencies:
            gain = self.speed_up(latency.runtime) if latency.sparse else None
            if gain is not None:
                what = "a speed-up" if gain >= GAIN else "no speed-up"
                twin = DENSE_TWIN[latency.runtime]
                verdicts.append(f"{latency.runtime}: {what}: {gain:.2f} times the speed of {twin} with dense weights")
        measured = [latency for latency in self.latencies if latency.milliseconds is not None]
        fastest = min(measured, key=lambda latency: latency.milliseconds or 0, default=None)
        if fastest is not None and not fastest.sparse and any(latency.sparse for latency in measured):
            verdicts.append(f"the fastest of all is dense: {fastest.runtime} with {fastest.milliseconds:.3g} ms")
        if measured and not any(latency.sparse for latency in measured):
            verdicts.append("no sparse runtime was measured: dense kernels multiply by zeros as by any other number")
        return verdicts

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return asdict(self)


def worth(
    model: nn.Module,
    example: Any = None,
    masks: Mapping[str, Tensor] | None = None,
    runtimes: Sequence[str] = ("torch", "torch-csr"),
    seconds: float = 0.5,
) -> Worth:
    """Measure what a pruned model costs.

    Args:
        model: a pruned model.
        example: a batch of inputs (a tensor, several in a tuple, or a dict by keyword); without one only parameters and
            bytes are told.
        masks: True where a weight is removed; by default the exact zeros of the prunable weights.
        runtimes: what to time: of "torch", "torch-csr", "onnxruntime", "openvino", "openvino-sparse"; a sparse one is
            timed beside the same one dense.
        seconds: how long to time each.
    """
    model = unwrapped(model)
    masks = zero_masks(model) if masks is None else check_masks(model, masks)
    pruned = count_zeros(model, masks)
    dense, compressed = file_sizes(model, masks)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if example is None:
        return Worth(parameters, parameters - pruned, dense, compressed, 0, 0, 0)
    total, sparse = count_multiply_adds(model, example, masks)
    wanted = dict.fromkeys(name for runtime in runtimes for name in (DENSE_TWIN.get(runtime, runtime), runtime))
    latencies = measure(model, example, masks, tuple(wanted), seconds)
    return Worth(parameters, parameters - pruned, dense, compressed, total, sparse, _batch(example), latencies)


def file_sizes(model: nn.Module, masks: Mapping[str, Tensor]) -> tuple[int, int]:
    """Return the bytes of the model's files, dense and compressed, by writing them."""
    return file_size(model, masks, compressed=False), file_size(model, masks, compressed=True)


def file_size(model: nn.Module, masks: Mapping[str, Tensor], compressed: bool, recorded: bool = False) -> int:
    """Return the bytes of the model's file, by writing it; it seals a record where that is written beside it."""
    with tempfile.TemporaryDirectory() as folder:
        file = save(model, Path(folder) / "model", masks, compressed=compressed, record={} if recorded else None)
        return next(file.glob("model*.safetensors")).stat().st_size


def _batch(example: Any) -> int:
    from brainsurgeon.samples.batches import tensors_of

    return len(tensors_of(example)[0])
