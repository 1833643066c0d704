"""One training step: the forward pass, the gradients, the optimizer; and the optimizer's state as tensors by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from brainsurgeon.network.trust import Trust
from brainsurgeon.pruning.gradual.ranks import Shares
from brainsurgeon.pruning.gradual.student import Student
from brainsurgeon.samples.batches import Batch


class Usual(NamedTuple):
    """What is usual for an optimizer: how many times AdamW's rate it needs, and its decay where samples are many."""

    times: float
    decay: float


OPTIMIZERS = {"adamw": Usual(1.0, 0.1), "sgd": Usual(30.0, 0.0005)}
"""What may take the steps. With momentum SGD takes ten times what its decay says."""
MOMENTUM = 0.9
"""Of SGD."""


@dataclass(frozen=True)
class Step:
    """A step on a batch; all that it changes stays where it is in memory, so that its kernels can be recorded."""

    student: Student
    trust: Trust
    optimizer: torch.optim.Optimizer
    value: Callable[[Batch, Callable[[], Any]], Tensor]
    outputs: nn.Module
    shares: Shares = field(default_factory=Shares)

    def __call__(self, batch: Batch) -> Tensor:
        """Take the step; return the loss before it."""
        loss = self.kernels(batch)
        self.trust.count()
        return loss

    def kernels(self, batch: Batch) -> Tensor:
        """Do all of it that runs on the device."""
        batch = self.shares.part(batch)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            loss = self.value(batch, lambda: self.student.forward(batch, self.outputs))
        loss.backward()
        self.student.take_gradients()
        found = self.shares.average(self.student, loss.detach())
        self.student.note_gradients()
        self.optimizer.step()
        return found

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that a step changes, as they are: a copy is the caller's to make."""
        losses = {} if self.trust.losses is None else {"trust": self.trust.losses}
        return self.student.state() | optimizer_state(self.optimizer) | losses

    def forget(self, state: Mapping[str, Tensor]) -> None:
        """Drop what the optimizer has made beside a state that was told before."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            if parameter in self.optimizer.state and not any(k.startswith(f"optimizer/{number}/") for k in state):
                del self.optimizer.state[parameter]


def make_optimizer(student: Student, kind: str, rate: float, decay: float) -> torch.optim.Optimizer:
    """Return AdamW or SGD on what a student trains; only what may be pruned decays."""
    decayed = [value for name, value in student.values.items() if name in student.masks]
    others = [value for name, value in student.values.items() if name not in student.masks]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": decay}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    on_gpu = decayed[0].is_cuda  # there the rate must be a tensor, for steps that are recorded
    first = torch.tensor(rate, device=decayed[0].device) if on_gpu else rate
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=first, momentum=MOMENTUM, nesterov=True, fused=True)
    return torch.optim.AdamW(groups, lr=first, betas=(0.9, 0.99), fused=True, capturable=on_gpu)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of an optimizer its learning rate, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's tensors by the number of the parameter and their name."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {
        f"optimizer/{number}/{name}": tensor
        for number, parameter in enumerate(parameters)
        for name, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer that has not stepped yet the tensors that `optimizer_state` told."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for key, tensor in tensors.items():
        kind, _, rest = key.partition("/")
        if kind == "optimizer":
            number, _, name = rest.partition("/")
            parameter = parameters[int(number)]
            like = parameter if tensor.dim() else tensor.to(parameter.device)  # moments lie as their parameter does
            optimizer.state[parameter][name] = torch.empty_like(like, requires_grad=False).copy_(tensor)
