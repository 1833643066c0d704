"""Count the bytes that would live on a device, on a machine that has none: the tensors of a pretended one.

Work is given the device "cpu:0". Whatever is moved there, and whatever is computed from it, counts until its storage is
freed or the tensor is moved back to "cpu". What kernels take inside, and the parts of an allocator, are not seen.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

PRETENDED = torch.device("cpu", 0)
Site = tuple[str, ...]


class LiveBytes:
    """The bytes that live on the pretended device, their peak, and where those at the peak were made."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.at_peak: Counter[Site] = Counter()
        self._live: dict[int, tuple[int, Site]] = {}
        self._modes = (_Moves(self), _Made(self))

    def __enter__(self) -> "LiveBytes":
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)

    def start_again(self) -> None:
        """Let the peak be what lives now."""
        self.peak = self.now

    def holds(self, tensor: Tensor) -> bool:
        """Say whether a tensor lies on the pretended device."""
        return tensor.untyped_storage()._cdata in self._live

    def add(self, tensor: Tensor) -> None:
        """Count the storage of a tensor for as long as it lives."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        self._live[key] = storage.nbytes(), _site()
        self.now += storage.nbytes()
        weakref.finalize(storage, self._drop, key)
        if self.now > self.peak:
            if self.now > 1.02 * sum(self.at_peak.values()):  # a table of all at every step would take long
                self.at_peak = Counter()
                for size, site in self._live.values():
                    self.at_peak[site] += size
            self.peak = self.now

    def _drop(self, key: int) -> None:
        self.now -= self._live.pop(key)[0]


class _Made(TorchDispatchMode):
    """Counts what is computed from tensors of the pretended device."""

    def __init__(self, live: LiveBytes) -> None:
        super().__init__()
        self.live = live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if any(self.live.holds(given) for given in _tensors((args, kwargs))):
            own = {given.untyped_storage()._cdata for given in _tensors((args, kwargs))}
            for made in _tensors(found):
                if made.untyped_storage()._cdata not in own:
                    self.live.add(made)
        return found


class _Moves(TorchFunctionMode):
    """Makes copies where work moves tensors between the CPU and the pretended device."""

    def __init__(self, live: LiveBytes) -> None:
        super().__init__()
        self.live = live

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.Tensor.to, torch.Tensor.cpu):
            return func(*args, **kwargs)
        wanted = [torch.device("cpu")] if func is torch.Tensor.cpu else _devices((*args[1:], kwargs.get("device")))
        source = args[0]
        if not wanted or self.live.holds(source) == (wanted[0] == PRETENDED):
            return func(*args, **kwargs)
        with torch.utils._python_dispatch._disable_current_modes():  # the copy is counted here, or not at all
            found = func(*args, **kwargs)
            if found.untyped_storage()._cdata == source.untyped_storage()._cdata:
                found = found.clone()
        if wanted[0] == PRETENDED:
            self.live.add(found)
        return found


def _devices(values: tuple[Any, ...]) -> list[torch.device]:
    return [torch.device(value) for value in values if isinstance(value, torch.device | str)]


def _tensors(value: Any) -> list[Tensor]:
    return [each for each in tree_iter(value) if isinstance(each, Tensor) and not each.is_meta]


def _site(depth: int = 3) -> Site:
    """Return the innermost lines outside of torch and of this file."""
    frame, found = sys._getframe(1), list[str]()
    while frame is not None and len(found) < depth:
        name = frame.f_code.co_filename
        if name != __file__ and "/torch/" not in name:
            found.append(f"{name.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)
