"""The operations of one forward pass, from `torch.export`, with the names of the parameters that they use."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import plain_attention, without_cache
from brainsurgeon.samples.batches import Batch


@dataclass(frozen=True)
class Call:
    """What a model was called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def run(self, model: nn.Module) -> Any:
        """Call a model in the same way, without gradients."""
        with torch.no_grad(), plain_attention(), without_cache(model):
            return model(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Traced:
    """A graph of ATen operations; `stored` names the parameter or buffer behind a placeholder."""

    graph: Graph
    stored: Mapping[Node, str]


def call_of(batch_loss: BatchLoss, batch: Batch) -> Call:
    """Return what the loss calls its model with; where it calls it several times, the first."""
    calls: list[Call] = []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(Call(args, kwargs))

    hook = batch_loss.model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with torch.no_grad():
            batch_loss(batch)
    finally:
        hook.remove()
    if not calls:
        raise BrainsurgeonError("the loss does not call the model, so that it cannot be traced: let it call model(…)")
    return calls[0]


def trace(model: nn.Module, call: Call) -> Traced:
    """Trace one call of a model in evaluation mode, or say what keeps PyTorch from it."""
    try:
        with warnings.catch_warnings(), torch.no_grad(), plain_attention(), without_cache(model):
            warnings.simplefilter("ignore")
            program = torch.export.export(model, call.args, dict(call.kwargs), strict=False)
    except Exception as error:  # the exporter raises many kinds, all for models it cannot trace
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise BrainsurgeonError(
            f"torch.export cannot trace {type(model).__name__}, so that it is not known what must go together: {said}"
        ) from error
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    first = _first_names(model)
    return Traced(program.graph, {node: first.get(names[node.name], names[node.name]) for node in held})


def _first_names(model: nn.Module) -> dict[str, str]:
    """Return the first name of each parameter that has several, by each of them."""
    first: dict[int, str] = {}
    named = list(model.named_parameters(remove_duplicate=False))
    for name, parameter in named:
        first.setdefault(id(parameter), name)
    return {name: first[id(parameter)] for name, parameter in named}


def needed(graph: Graph) -> list[Node]:
    """Return the nodes that the outputs depend on, in order."""
    wanted: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in wanted:
            wanted.add(node)
            wanted.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in wanted]
