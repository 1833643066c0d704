"""ONNX, checked: onnxruntime must give the model's own outputs, and find its zeros in the file."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.modes import evaluated
from brainsurgeon.network.names import unwrapped

ADVICE = "pip install 'brainsurgeon[onnx]'"


@dataclass(frozen=True)
class OnnxExport:
    """A file that was written and checked: the largest difference of its outputs, and the zeros among its weights."""

    path: Path
    difference: float
    zeros: int
    weights: int


def to_onnx(
    model: nn.Module, example: Any, path: str | Path, *, dynamic_batch: bool = True, tolerance: float = 1e-4
) -> OnnxExport:
    """Write a model as ONNX and check it: onnxruntime's outputs on the example, and on another number of samples.

    Args:
        model: any model that `torch.export` can trace; it is exported in evaluation mode.
        example: a batch of its inputs: a tensor, several in a tuple, or a dict by keyword.
        path: the file to write, with all weights in it.
        dynamic_batch: let the file take any number of samples.
        tolerance: the largest difference allowed, as a share of the largest output.
    """
    path, model = Path(path), unwrapped(model)
    with evaluated(model), _without_cache(model):
        args, kwargs = _calling(example)
        _export(model, _twice((args, kwargs)) if dynamic_batch else (args, kwargs), path, dynamic_batch)
        checked = [(args, kwargs)] + ([_twice((args, kwargs))] if dynamic_batch else [])
        difference = max(_compare(model, inputs, path) for inputs in checked)
    if not difference <= tolerance:
        raise BrainsurgeonError(
            f"the exported model differs from the original by {difference:.2g} of its largest output, more than "
            f"{tolerance:g}: do not use {path}; give another opset or report the model"
        )
    zeros, weights = _count(path)
    return OnnxExport(path, difference, zeros, weights)


def session(path: Path, threads: int = 0) -> Any:
    """Open a file in onnxruntime on the CPU."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise BrainsurgeonError(f"running ONNX files needs onnxruntime: {ADVICE}") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feed(opened: Any, inputs: Any) -> dict[str, Any]:
    """Lay tensors out as the named inputs of a session, in order."""
    tensors = [part for part in _pytree.tree_leaves(inputs) if isinstance(part, Tensor)]
    names = [one.name for one in opened.get_inputs()]
    return {name: tensor.detach().cpu().numpy() for name, tensor in zip(names, tensors, strict=True)}


def _export(model: nn.Module, inputs: Any, path: Path, dynamic_batch: bool) -> None:
    try:
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise BrainsurgeonError(f"ONNX export needs onnx, onnxscript and onnxruntime: {ADVICE}") from error
    args, kwargs = inputs
    shapes = _pytree.tree_map(_batch_grows, inputs) if dynamic_batch else None
    given = None if shapes is None else (shapes[1] if kwargs else shapes[0])
    try:
        with _quiet():
            torch.onnx.export(
                model,
                args,
                path,
                kwargs=kwargs or None,
                dynamic_shapes=given,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # the exporter raises many kinds, all for models it cannot trace
        hint = " (or with dynamic_batch=False)" if dynamic_batch else ""
        raise BrainsurgeonError(
            f"PyTorch cannot export {type(model).__name__} to ONNX: {_cause(error)}. Try torch.export.export{hint}"
        ) from error


def _batch_grows(part: Any) -> dict[int, Any] | None:
    return {0: torch.export.Dim.DYNAMIC} if isinstance(part, Tensor) else None


def _cause(error: BaseException) -> str:
    """Return the first line of what an error came from, without the colours of a terminal."""
    while error.__cause__ is not None:
        error = error.__cause__
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().partition("\n")[0].rstrip(". ") or type(error).__name__


@torch.no_grad()
def _compare(model: nn.Module, inputs: Any, path: Path) -> float:
    """Return the largest difference between the outputs, as a share of the largest output."""
    expected = [t for t in _pytree.tree_leaves(_values(model(*inputs[0], **inputs[1]))) if isinstance(t, Tensor)]
    worst = 0.0
    for one, other in zip(expected, _outputs(model, inputs, path), strict=True):
        other = torch.from_numpy(other)
        if one.shape != other.shape:
            raise BrainsurgeonError(f"{path} gives outputs of shape {tuple(other.shape)}, the model {tuple(one.shape)}")
        worst = max(worst, _difference(one.detach().cpu().double(), other.double()))
    return worst


def _outputs(model: nn.Module, inputs: Any, path: Path) -> Any:
    """Return what onnxruntime gives; a file that it cannot run is removed, as nobody could check it."""
    try:
        opened = session(path)
        return opened.run(None, feed(opened, inputs))
    except BrainsurgeonError:
        raise
    except Exception as error:  # onnxruntime and NumPy raise many kinds, for types of numbers that they do not have
        path.unlink(missing_ok=True)
        kinds = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()} - {"float32"}
        held = f", whose parameters are {', '.join(sorted(kinds))}" if kinds else ""
        advice = "export model.float(), with an example of the same type" if kinds else "report the model"
        raise BrainsurgeonError(
            f"onnxruntime cannot run {type(model).__name__}{held}: {_cause(error)}. No file was kept; {advice}"
        ) from error


def _difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference as a share of the largest output; infinite where a NaN or an infinity is amiss."""
    if not one.numel() or torch.equal(one, other):
        return 0.0
    finite = one.isfinite() & other.isfinite()
    if bool((one != other)[~finite].any()):
        return math.inf
    scale = max(float(one[finite].abs().max()), 1e-6)
    return float((one - other)[finite].abs().max()) / scale


def _count(path: Path) -> tuple[int, int]:
    """Count the zeros and all numbers of the file's weights."""
    import numpy as np
    import onnx

    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    matrices = [array for array in arrays if array.ndim >= 2]
    return sum(int(np.sum(array == 0)) for array in matrices), sum(array.size for array in matrices)


def _calling(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example) if isinstance(example, list | tuple) else (example,)), {}


def _twice(inputs: Any) -> Any:
    return _pytree.tree_map(lambda part: torch.cat([part, part]) if isinstance(part, Tensor) else part, inputs)


def _values(output: Any) -> Any:
    """Take a model's output apart where it is a mapping or dataclass of tensors and Nones."""
    return [value for value in output.values() if value is not None] if isinstance(output, Mapping) else output


@contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Let a Hugging Face model give its outputs alone: a cache of keys and values is no tensor that ONNX could hold."""
    config = getattr(model, "config", None)
    cached = getattr(config, "use_cache", None)
    try:
        if cached:
            config.use_cache = False  # type: ignore[union-attr]
        yield
    finally:
        if cached:
            config.use_cache = cached  # type: ignore[union-attr]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back the exporter's chatter on packages that are not there."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
