"""Saving networks, and reading the checkpoints of others by the names and shapes of a network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.files.torch_files import CheckpointError, read_torch
from brainsurgeon.files.writing import write_whole
from brainsurgeon.network.names import listed, plain_names, unwrapped

_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
_LISTED = 5  # names shown in an error


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the weights in a safetensors or torch file, by their plain names.

    The usual wrappings are taken off: `state_dict` and its like, the `module.` of data-parallel training, the
    `_orig_mod.` of `torch.compile`, the `_layer` of masked layers, whose masks are dropped. The pair `weight_orig`,
    `weight_mask` of `torch.nn.utils.prune` becomes the pruned `weight`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else read_torch(path)
    for key in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    found = dict(content) if isinstance(content, Mapping) else {}
    named = {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, Tensor)}
    state = _plain_state(named, path)
    if not state:
        came = f"the keys {listed(map(str, found), _LISTED)}" if found else f"a {type(content).__name__}"
        raise CheckpointError(
            f"Expected named tensors in {path}, alone or under one of {', '.join(_WRAPPERS)}; found {came}. "
            "Save `model.state_dict()` and read that."
        )
    return state


def load_checkpoint(model: nn.Module, path: str | Path) -> nn.Module:
    """Load the weights in `path` into `model`, all of them and nothing else, and give it back."""
    return fit(model, read_state_dict(path), path)


def fit(model: nn.Module, state: dict[str, Tensor], path: str | Path) -> nn.Module:
    """Put a state dict into `model`, all of it and nothing else, or say what does not fit; `path` is its origin.

    Names are compared without the prefixes of `torch.compile` and of data-parallel training, on both sides.
    """
    inner = unwrapped(model)
    own = plain_names({name: name for name in inner.state_dict()})
    expected, state = plain_names(inner.state_dict()), plain_names(state)
    _fill_in(state, expected)
    problems = []
    if missing := [name for name in expected if name not in state]:
        problems.append(f"it lacks {listed(missing, _LISTED)}")
    if unknown := [name for name in state if name not in expected]:
        problems.append(f"the network has no {listed(unknown, _LISTED)}")
    shapes = [
        f"{name} (network {tuple(expected[name].shape)}, file {tuple(value.shape)})"
        for name, value in state.items()
        if name in expected and isinstance(value, Tensor) and expected[name].shape != value.shape
    ]
    if shapes:
        problems.append(f"the shapes differ for {listed(shapes, _LISTED)}")
    if problems:
        raise CheckpointError(
            f"{path} does not fit {type(model).__name__}: {'; '.join(problems)}. "
            "Build the network with the kind, depth and width it was trained with."
        )
    inner.load_state_dict({own[name]: value for name, value in state.items()})
    return model


def _fill_in(state: dict[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Add what a file may leave out: counters without effect, what is no tensor, further names of one that it holds."""
    held = {place(value, name): state[name] for name, value in expected.items() if name in state}
    for name, value in expected.items():
        if name.endswith("num_batches_tracked") or not isinstance(value, Tensor):  # some writers leave it out
            state.setdefault(name, value)
        elif name not in state and place(value, name) in held:
            state[name] = held[place(value, name)]


def place(tensor: Tensor, name: str) -> Any:
    """Tell tensors that are one and the same memory; an empty one, or what is no plain tensor, is only itself."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_meta or not tensor.numel():
        return name
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def once(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors, each memory once, and for every further name of one the name that it is stored under."""
    first: dict[Any, str] = {}
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    for name, tensor in state.items():
        known = first.setdefault(place(tensor, name), name)
        if known == name:
            stored[name] = tensor
        else:
            tied[name] = known
    return stored, tied


def stored_state(model: nn.Module) -> dict[str, Tensor]:
    """Return what files hold of a model's state, by plain names.

    Extra state that is no tensor (`get_extra_state`) cannot be kept as such; `fit` leaves a model its own.
    """
    state = plain_names(unwrapped(model).state_dict())
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def save_checkpoint(model: nn.Module, path: str | Path, metadata: dict[str, str] | None = None) -> None:
    """Write the weights of `model` as safetensors, tied ones once; the file appears whole or not at all."""
    stored, tied = once(stored_state(model))
    save_tensors(stored, path, {**tied, **(metadata or {})} or None)


def save_tensors(tensors: Mapping[str, Tensor], path: str | Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors by name as safetensors."""
    from safetensors.torch import save

    copies = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    write_whole(Path(path), save(copies, metadata))  # its own save_file would make the file private to us


def _plain_state(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return tensors by the names of the plain network, masks of pruned pairs and of masked layers put in."""
    plain = {}
    for name, value in state.items():
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise CheckpointError(
                f"{path}: {name!r} is larger than what is stored of it. It is not a plain checkpoint."
            )
    named = plain_names(state) if state else {}
    for name, value in named.items():
        owner, _, own = name.rpartition(".")
        if own.endswith("mask") and _is_of_pruning(name, owner, named):
            continue
        mask = named.get(f"{name.removesuffix('_orig')}_mask")
        if name.endswith("_orig") and mask is not None and mask.shape == value.shape:
            name, value = name.removesuffix("_orig"), value * mask
        plain[name.replace("._layer.", ".")] = value
    return plain


def _is_of_pruning(name: str, owner: str, named: Mapping[str, Tensor]) -> bool:
    """Say whether a mask belongs to a pruned pair or a masked layer; any other is a buffer of the network."""
    layer = f"{owner}._layer." if owner else "_layer."
    return f"{name.removesuffix('_mask')}_orig" in named or any(other.startswith(layer) for other in named)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not an intact safetensors file: {error}.") from error
