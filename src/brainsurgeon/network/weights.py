"""Which tensors of a model may be pruned, and the flat vector w of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.held import Held
from brainsurgeon.network.names import listed, name_matches, plain_name, unwrapped
from brainsurgeon.network.prunable import check_memory, check_model, check_parameter
from brainsurgeon.network.spread import holders, is_dispatched

Rule = str | type[nn.Module] | Sequence[str | type[nn.Module]] | None

NORMALISATION = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)


@dataclass(frozen=True)
class Layer:
    """One prunable tensor: its parameter name, its shape and its place in the flat vector."""

    name: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def columns(self) -> slice:
        """Its place in the flat vector."""
        return slice(self.offset, self.offset + self.size)


@dataclass(frozen=True)
class PrunableWeights:
    """The prunable tensors of a model, in order, as one vector of N numbers."""

    layers: tuple[Layer, ...]

    @property
    def size(self) -> int:
        """N."""
        return sum(layer.size for layer in self.layers)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(layer.name for layer in self.layers)

    @property
    def parts(self) -> list[tuple[str, int, int]]:
        """Name, offset and size of each layer: the layers as a budget sees them."""
        return [(layer.name, layer.offset, layer.size) for layer in self.layers]

    def flatten(self, model: nn.Module) -> Tensor:
        """Return w̄: a copy, in float32 (float64 where the model has it)."""
        parts = [model.get_parameter(name).detach().reshape(-1) for name in self.names]
        dtype = torch.float64 if any(p.dtype == torch.float64 for p in parts) else torch.float32
        flat = torch.cat([part.to(dtype) for part in parts])
        if not bool(torch.isfinite(flat).all()):
            bad = next(la.name for la in self.layers if not bool(torch.isfinite(flat[la.columns]).all()))
            raise BrainsurgeonError(f"parameter {bad!r} holds NaN or infinite values: the model cannot be pruned")
        return flat

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of the vector by parameter name, each in its parameter's shape."""
        return {layer.name: vector[layer.columns].view(layer.shape) for layer in self.layers}

    def assign(self, model: nn.Module, vector: Tensor) -> None:
        """Write the vector into the model's parameters."""
        write(model, self.unflatten(vector))

    @contextmanager
    def lent_to(self, model: nn.Module, vector: Tensor) -> Iterator[None]:
        """Let a model have these weights for a while: whatever reads its parameters, by any name, sees them."""
        before = [model.get_parameter(name).detach().clone() for name in self.names]
        try:
            self.assign(model, vector)
            yield
        finally:
            write(model, dict(zip(self.names, before, strict=True)))


def laid_out(layers: Sequence[Layer]) -> PrunableWeights:
    """Return some layers as a flat vector of their own."""
    found, offset = [], 0
    for layer in layers:
        found.append(Layer(layer.name, layer.shape, offset, layer.size))
        offset += layer.size
    return PrunableWeights(tuple(found))


def write(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Write values into the model's parameters, by name."""
    for name, value in values.items():
        parameter = model.get_parameter(name)
        with torch.inference_mode() if parameter.is_inference() else torch.no_grad():
            parameter.copy_(value)


def find_weights(model: nn.Module, include: Rule = None, exclude: Rule = None) -> PrunableWeights:
    """Find what may be pruned.

    By default: every trainable parameter of two or more dimensions outside a normalisation layer whose own name
    begins or ends with `weight`, that is, linear, convolution, embedding, attention and recurrent weights. Biases,
    normalisation layers and bare parameters (`nn.Parameter`s of a module's own, by another name) are left alone unless
    `include` names them. `include` and `exclude` take parameter or module names, glob patterns over them, and module
    types. A tensor that several modules share counts once, under its first name, and excluding any of its names
    excludes it.
    Frozen weights (`requires_grad` is False) are passed over, also where `include` gives their module or its
    type; a rule that names the parameters themselves, as `head.weight` and `*.base_layer.weight` do, prunes them too.
    """
    model = unwrapped(model)
    check_model(model)
    held = holders(model)
    chosen: dict[int, tuple[str, nn.Parameter]] = {}
    left_alone: set[int] = set()
    owners = _owners(model)
    includes, excludes = _rules(include), _rules(exclude)
    used: set[str | type[nn.Module]] = set()
    frozen: list[str] = []  # what include gives, but not by the parameters' own names
    for name, (parameter, modules) in owners.items():
        matched = [rule for rule in includes if _matches(rule, name, modules)]
        dropped = [rule for rule in excludes if _matches(rule, name, modules)]
        used.update(matched, dropped)
        if includes and (parameter.dim() < 2 or not parameter.requires_grad):  # neither is swept up with its layer
            frozen += [name] if matched and parameter.dim() >= 2 else []
            matched = [rule for rule in matched if _asks_for(rule, name)]
        wanted = bool(matched) if includes else _by_default(name, parameter, modules)
        if dropped:
            left_alone.add(id(parameter))
        elif wanted:
            check_parameter(name, parameter, modules[-1], parameter in held)
            if parameter.numel():
                chosen.setdefault(id(parameter), (name, parameter))
    for rule in [*includes, *excludes]:
        if rule not in used:
            raise BrainsurgeonError(f"{_show(rule)} matches no parameter; the model has: {listed(owners)}")
    found = [entry for key, entry in chosen.items() if key not in left_alone]
    if not found:
        raise BrainsurgeonError(
            f"nothing to prune: no trainable weight is left by include={include!r}, exclude={exclude!r}"
            f"{_why(owners, frozen)}; the model has: {listed(owners)}"
        )
    return _lay_out(found, held, is_dispatched(model))


def _why(owners: Mapping[str, tuple[nn.Parameter, list[nn.Module]]], frozen: Sequence[str]) -> str:
    """Say why nothing is left: the weights are frozen (all, or all but an adapter's, or those asked for), or bare.

    `frozen` are the frozen weights that `include` gives by their module or its type.
    """
    weights = {name: p for name, (p, _) in owners.items() if p.dim() >= 2 and _is_called_weight(name)}
    bare = [name for name, (p, _) in owners.items() if p.dim() >= 2 and name not in weights]
    still = [name for name, parameter in weights.items() if not parameter.requires_grad]
    trained = [name for name, (parameter, _) in owners.items() if parameter.requires_grad]
    named = (frozen or still or [""])[0]
    advice = f"to prune frozen weights, name them in include, as {named!r} or '*.{named.rpartition('.')[2]}' do"
    if frozen:
        return f": what include gives is frozen ({len(frozen)} weights; requires_grad is False), {advice}"
    if still and len(still) == len(weights):
        return f": all weights are frozen (requires_grad is False), {advice}, or unfreeze them"
    if still:
        return f": {len(still)} weights are frozen and only {listed(trained, 3)} can be trained (adapters?), {advice}"
    if bare and not weights:
        return f": no name begins or ends with 'weight'; parameters by other names are pruned as in include={bare[:3]}"
    return ""


def _lay_out(chosen: list[tuple[str, nn.Parameter]], held: Held, dispatched: bool) -> PrunableWeights:
    there = [(name, parameter) for name, parameter in chosen if parameter not in held]
    devices = {parameter.device for _, parameter in there}
    if len(devices) > 1 and not dispatched:
        raise BrainsurgeonError(f"the model must be on one device, its weights are on {sorted(map(str, devices))}")
    check_memory(there)
    return laid_out([Layer(name, tuple(parameter.shape), 0, parameter.numel()) for name, parameter in chosen])


def _owners(model: nn.Module) -> dict[str, tuple[nn.Parameter, list[nn.Module]]]:
    """Map each parameter name to the parameter and the modules that hold it, outermost first."""
    owners = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        modules = [model]
        for part in name.split(".")[:-1]:
            modules.append(modules[-1]._modules[part])  # type: ignore[arg-type]  # never None on a parameter's way
        owners[plain_name(name)] = (parameter, modules)
    return owners


def _rules(rule: Rule) -> list[str | type[nn.Module]]:
    if rule is None:
        return []
    rules = [rule] if isinstance(rule, str | type) or not isinstance(rule, Sequence) else list(rule)
    if bad := [rule for rule in rules if not isinstance(rule, str | type)]:
        raise BrainsurgeonError(f"include and exclude take names, patterns and module types, got {bad[0]!r}")
    return rules


def _matches(rule: str | type[nn.Module], name: str, modules: list[nn.Module]) -> bool:
    if isinstance(rule, type):
        return any(isinstance(module, rule) for module in modules)
    return name_matches(rule, name)


def _asks_for(rule: str | type[nn.Module], name: str) -> bool:
    """Say whether a rule names the parameter itself, as `*.bias` does and `layers.*` does not."""
    if isinstance(rule, type):
        return False
    own = rule.rpartition(".")[2]
    return fnmatchcase(name, rule) and own.strip("*?") != "" and fnmatchcase(name.rpartition(".")[2], own)


def _by_default(name: str, parameter: nn.Parameter, modules: list[nn.Module]) -> bool:
    return (
        parameter.requires_grad
        and parameter.dim() >= 2
        and _is_called_weight(name)
        and not isinstance(modules[-1], NORMALISATION)
    )


def _is_called_weight(name: str) -> bool:
    own = name.rpartition(".")[2]
    return own.startswith("weight") or own.endswith("weight") or "parametrizations" in name


def _show(rule: str | type[nn.Module]) -> str:
    return f"module type {rule.__name__}" if isinstance(rule, type) else f"pattern {rule!r}"
