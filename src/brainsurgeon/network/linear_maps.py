"""Layers that are plain linear maps of their inputs: linear layers and convolutions, as rows of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.network.inputs import flat_transposed, read_input, reader_of
from brainsurgeon.network.weights import Layer


@dataclass(frozen=True)
class LinearMap:
    """A layer that is a plain linear map of its inputs: its parameter's name, and the module that holds it."""

    name: str
    module: nn.Module

    @property
    def weight(self) -> nn.Parameter:
        """Its parameter."""
        return self.module.weight  # type: ignore[return-value]

    @property
    def transposed(self) -> bool:
        """Whether its weights lie inputs first."""
        return self._reader is flat_transposed

    @property
    def groups(self) -> int:
        """The number of groups of a grouped convolution, 1 for all others."""
        return int(getattr(self.module, "groups", 1))

    @property
    def _reader(self) -> Callable[[Tensor], Tensor]:
        found = reader_of(self.module, _layer(self.name, self.weight))
        assert found is not None  # `linear_maps` gives no others
        return found

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Return X, groups × inputs × positions."""
        return read_input(self._reader, args, kwargs)

    def rows(self, values: Tensor) -> Tensor:
        """Return weights, or a mask of them, as groups × rows × inputs."""
        flat = values.T if self.transposed else values.reshape(values.shape[0], -1)
        return flat.reshape(self.groups, -1, flat.shape[1])

    def stored(self, rows: Tensor) -> Tensor:
        """Return groups × rows × inputs in the shape of the parameter."""
        flat = rows.reshape(-1, rows.shape[-1])
        return flat.T.contiguous() if self.transposed else flat.reshape(self.weight.shape)

    def assign(self, values: Tensor) -> None:
        """Write values, in the shape of the parameter, into it; whoever lent it sees that it has changed."""
        with torch.inference_mode() if self.weight.is_inference() else torch.no_grad():
            self.weight.copy_(values)


def linear_maps(model: nn.Module, names: Sequence[str]) -> list[LinearMap]:
    """Return the named parameters that are plain linear maps: linear layers and convolutions."""
    found = []
    for name in names:
        module = model.get_submodule(name.rpartition(".")[0])
        if reader_of(module, _layer(name, model.get_parameter(name))) is not None:
            found.append(LinearMap(name, module))
    return found


def _layer(name: str, weight: nn.Parameter) -> Layer:
    return Layer(name, tuple(weight.shape), 0, weight.numel())
