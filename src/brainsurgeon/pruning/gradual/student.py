"""The network under training: dense weights θ, and a mask that says which of them take part.

The forward pass sees θ ⊙ mask. A weight that is masked keeps its value, and comes back if its score is again among the
highest when the mask is next found. The score of a weight is |θ|·v^(p/2), with v the running mean of its squared
gradient: p = 0 is magnitude, p = 1 the diagonal of Optimal Brain Damage.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from brainsurgeon.engine.budget import Budget
from brainsurgeon.network.buffers import give_buffers, lasting, set_buffers
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.samples.batches import Batch

SQUARES = 0.99
"""How much of the running mean of the squared gradients stays at each step."""


class Student:
    """A model whose prunable weights, and with `all_parameters` the others too, are trained as tensors of their own.

    The model itself holds θ ⊙ mask: whatever its forward pass reads, by any name or once more on the way back, is that.
    """

    def __init__(self, model: nn.Module, weights: PrunableWeights, all_parameters: bool):
        self.model, self.weights = model, weights
        free = {n: p for n, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
        names = [*weights.names, *(name for name in free if all_parameters and name not in weights.names)]
        self.dtypes = {name: model.get_parameter(name).dtype for name in names}
        wide = {name: torch.promote_types(dtype, torch.float32) for name, dtype in self.dtypes.items()}
        self.values = {n: model.get_parameter(n).detach().clone().to(wide[n]).requires_grad_() for n in names}
        self.masks = {name: torch.ones_like(self.values[name]) for name in weights.names}
        self.squares = {name: torch.zeros_like(self.values[name]) for name in weights.names}
        self.gone: dict[str, Tensor] = {}
        model.requires_grad_(False)
        for name in names:
            model.get_parameter(name).requires_grad_()

    @torch.no_grad()
    def begin(self, values: Mapping[str, Tensor], pruned: Mapping[str, Tensor]) -> None:
        """Begin from other weights and from a mask that stays."""
        for name in self.weights.names:
            self.values[name].copy_(values[name])
            self.masks[name].copy_(~pruned[name].to(self.masks[name].device))

    @torch.no_grad()
    def go_on(self, pruned: Mapping[str, Tensor]) -> None:
        """Take over the mask of a network that was pruned before: what is gone there goes first at every cut."""
        for name in self.weights.names:
            self.gone[name] = pruned[name].to(self.masks[name].device)
            self.masks[name].copy_(~self.gone[name])

    def effective(self) -> dict[str, Tensor]:
        """Return the weights that the forward pass sees."""
        masked = torch._foreach_mul([self.values[name] for name in self.masks], list(self.masks.values()))
        found = self.values | dict(zip(self.masks, masked, strict=True))
        return {name: value.to(self.dtypes[name]) for name, value in found.items()}

    def forward(self, batch: Batch, outputs: nn.Module) -> Tensor:
        """Return the outputs for a batch; `outputs` is a module that holds the model."""
        self.write(self.model)
        found: Tensor = outputs(batch)
        return found

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Take the gradients over from the model."""
        for name, value in self.values.items():
            parameter = self.model.get_parameter(name)
            if parameter.grad is not None:
                value.grad = parameter.grad.to(value.dtype)
                parameter.grad = None

    @torch.no_grad()
    def note_gradients(self) -> None:
        """Follow the squares of the gradients; θ ⊙ mask passes none to what is masked."""
        found = {name: self.values[name].grad for name in self.masks}
        gradients = {name: gradient for name, gradient in found.items() if gradient is not None}
        if gradients:  # one kernel for all of them
            torch._foreach_mul_(list(gradients.values()), [self.masks[name] for name in gradients])
            squares = torch._foreach_mul(list(gradients.values()), list(gradients.values()))
            torch._foreach_lerp_([self.squares[name] for name in gradients], squares, 1 - SQUARES)

    @torch.no_grad()
    def cut(self, budget: Budget, power: float, returning: bool) -> None:
        """Find the mask again: exactly the budget's counts of the lowest scores go."""
        scores = torch.cat([score.reshape(-1) for score in self._scores(power, returning)])
        kept = self.weights.unflatten((~budget.lowest(scores)).to(scores.dtype))
        torch._foreach_copy_(list(self.masks.values()), [kept[name] for name in self.masks])
        if not returning:
            self.settle()

    def _scores(self, power: float, returning: bool) -> list[Tensor]:
        """Return the scores of each layer: there are many cuts, so all layers share a kernel where one can be had."""
        scores = list(torch._foreach_abs([self.values[name] for name in self.masks]))
        if power:
            roots = torch._foreach_add([self.squares[name] for name in self.masks], 1e-16)
            torch._foreach_pow_(roots, power / 2)
            torch._foreach_mul_(scores, roots)
        for score, name in zip(scores, self.masks, strict=True):
            if name in self.gone:
                score.masked_fill_(self.gone[name], -1.0)
            if not returning:
                score.masked_fill_(self.masks[name] == 0, -1.0)
        return scores

    @torch.no_grad()
    def settle(self) -> None:
        """Let the pruned weights go for good."""
        for name, mask in self.masks.items():
            self.values[name].mul_(mask)

    def pruned(self) -> dict[str, Tensor]:
        """Return the masks, True where a weight is removed."""
        return {name: (mask == 0).contiguous() for name, mask in self.masks.items()}

    @torch.no_grad()
    def write(self, model: nn.Module) -> None:
        """Write the effective weights into a model."""
        found = self.effective()
        torch._foreach_copy_([model.get_parameter(name) for name in found], list(found.values()))

    @torch.no_grad()
    def hand_over(self, model: nn.Module) -> None:
        """Give another model the effective weights, and what training has made of the buffers."""
        self.write(model)
        give_buffers(self.model, model)

    def state(self) -> dict[str, Tensor]:
        """Return all that a step changes, as tensors by name."""
        return self._tensors() | {f"buffer/{name}": buffer for name, buffer in self.model.named_buffers()}

    def stored(self) -> dict[str, Tensor]:
        """Return all that the student is, as tensors by name: caches are made again."""
        return self._tensors() | {f"buffer/{name}": buffer for name, buffer in lasting(self.model).items()}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `stored` told."""
        for name, own in self._tensors().items():
            own.copy_(tensors[name])
        buffers = {name: value for name, value in tensors.items() if name.startswith("buffer/")}
        set_buffers(self.model, {name.removeprefix("buffer/"): value for name, value in buffers.items()})

    def _tensors(self) -> dict[str, Tensor]:
        parts: Mapping[str, Mapping[str, Tensor]] = {"value": self.values, "mask": self.masks, "square": self.squares}
        return {f"{part}/{name}": t.detach() for part, tensors in parts.items() for name, t in tensors.items()}
