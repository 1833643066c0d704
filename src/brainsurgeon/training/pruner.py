"""Gradual pruning in a training loop of the user's own: a little more every few steps, then exactly ⌈rN⌉.

The score of a weight is |w|·v^(p/2), with v the running mean of its squared gradient: Adam's own where the optimizer
keeps one, else followed here. p = 0 is magnitude, p = 1 the diagonal of Optimal Brain Damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brainsurgeon.engine.budget import as_budget, as_decimal, share_out
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.names import name_matches, named_parameters, unwrapped
from brainsurgeon.network.weights import Rule, find_weights
from brainsurgeon.pruning.gradual.student import SQUARES
from brainsurgeon.training.checks import check_trained, checked_plan, checked_steps
from brainsurgeon.training.freeze import FrozenZeros
from brainsurgeon.training.held import as_optimizers, holders, own_square, unbiased_square


class Pruner:
    """Prune a model while it is trained: call `step()` after every `optimizer.step()`.

    The sparsity rises as r(1 − (1 − t)^power) until the share `end` of the steps; the steps after that train what is
    left. Between two cuts the pruned weights are exactly zero, whatever the optimizer does.

    Args:
        model: what is trained; it is pruned in place, and nothing is added to it.
        optimizer: what trains it, or several.
        sparsity: the share of the prunable weights that is gone at the end; None where the budget names all layers.
        steps: optimizer steps of the whole training.
        end: the share of the steps after which the last cut is made.
        cuts: how many cuts in all, no more than one a step.
        power: how early most weights go; 1 is a straight line.
        score_power: p of the score |w|·v^(p/2).
        returning: whether a pruned weight comes back, with the value it had, where its score is high again.
        include: as for `brainsurgeon.prune`; frozen weights that it names have no gradients, and need `score_power=0`.
        exclude: as for `brainsurgeon.prune`.
        budget: as for `brainsurgeon.prune`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Iterable[Optimizer],
        sparsity: float | None,
        *,
        steps: int,
        end: float = 0.7,
        cuts: int = 240,
        power: float = 4.0,
        score_power: float = 0.5,
        returning: bool = True,
        include: Rule = None,
        exclude: Rule = None,
        budget: str | dict[str, float] = "global",
    ):
        self.model = unwrapped(model)
        self.plan = checked_plan(end, cuts, power, score_power, returning)
        self.steps = checked_steps(steps, end)
        self.weights = find_weights(self.model, include, exclude)
        self._shares = share_out(budget, sparsity, self.weights.parts, name_matches)  # a bad sparsity is refused there
        total = sum(share.count for share in self._shares)
        self._target = total / self.weights.size if sparsity is None else as_decimal(sparsity)
        self._parameters = {name: named_parameters(self.model)[name] for name in self.weights.names}
        optimizers = as_optimizers(optimizer)
        self._holders = holders(optimizers, self._parameters, score_power > 0)
        self._step = 0
        self._squares: dict[str, Tensor] = {}
        self._resting: dict[str, Tensor] = {}
        masks = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in self._parameters.items()}
        self._hooks = [one.register_step_post_hook(self._follow) for one in optimizers] if score_power else []
        self._frozen = FrozenZeros(self.model, optimizers, masks)

    @property
    def masks(self) -> dict[str, Tensor]:
        """True where a weight is removed, by parameter name, as things stand."""
        return dict(self._frozen.masks)

    @property
    def pruned(self) -> int:
        """How many weights are removed now."""
        return sum(int(mask.sum()) for mask in self._frozen.masks.values())

    @property
    def sparsity(self) -> float:
        """The share of the prunable weights that is removed now."""
        return self.pruned / self.weights.size

    @property
    def done(self) -> bool:
        """Whether the last cut has been made."""
        return self._step >= self.steps or self.plan.due(self._step / self.steps) >= self.plan.cuts

    def step(self) -> None:
        """Count a step of the optimizer, and prune if a cut is due; after the last cut the zeros are held, no more."""
        before, was_done = self.plan.due(self._step / self.steps), self.done
        self._step += 1
        if not was_done and (self.done or self.plan.due(self._step / self.steps) > before):
            self._cut()

    def finish(self) -> None:
        """Make the last cut now, where training ends before its steps are done."""
        if not self.done:
            self._step = self.steps
            self._cut()

    def count(self) -> int:
        """Return the number of pruned weights, having verified that every one of them is exactly zero."""
        return self._frozen.count()

    def remove(self) -> None:
        """Let go of the zeros: the weights stay as they are, and may grow again."""
        self._frozen.remove()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the model's and the optimizer's state: numbers and tensors."""
        return {
            "step": self._step,
            "settings": self._settings(),
            "masks": self.masks,
            "resting": dict(self._resting),
            "squares": {name: square.clone() for name, square in self._squares.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, with the same settings; load the model and the optimizer as well."""
        missing = {"step", "settings", "masks", "resting", "squares"} - set(state)
        if missing:
            raise BrainsurgeonError(f"this is no state of a Pruner: it has no {', '.join(sorted(missing))}")
        own, given = self._settings(), dict(state["settings"])
        if changed := [name for name in own if own[name] != given.get(name)]:
            name = changed[0]
            raise BrainsurgeonError(
                f"the state is of a Pruner with {name}={given.get(name)!r}, this one has {name}={own[name]!r}: "
                "make it with the same settings"
            )
        self._frozen.change(state["masks"])
        self._step = int(state["step"])
        self._resting = self._placed(state["resting"])
        self._squares = self._placed(state["squares"])

    def _settings(self) -> dict[str, Any]:
        """Return what two Pruners must have in common for one to go on from the other's state."""
        plan = {name: getattr(self.plan, name) for name in ("end", "cuts", "power", "score_power", "returning")}
        parts = [f"{share.count} of {', '.join(layer[0] for layer in share.layers)}" for share in self._shares]
        return {"sparsity": self._target, "steps": self.steps, **plan, "budget": "; ".join(parts)}

    def _placed(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self._parameters[name].device, copy=True) for name, tensor in tensors.items()}

    @torch.no_grad()
    def _follow(self, optimizer: Optimizer, *_: object) -> None:
        """Follow the squared gradients of the weights for which the optimizer does not do it itself.

        The hooks stay after the last cut, when there is nothing to follow: an earlier state may be loaded.
        """
        if self.done:
            return
        for name, parameter in self._parameters.items():
            gradient = parameter.grad
            if gradient is None or self._holders[name] is not optimizer:
                continue
            if own_square(optimizer, parameter) is not None:
                continue
            square = gradient.to_dense().float().square().nan_to_num_(0, 0, 0)  # a step that a GradScaler leaves out
            followed = self._squares.get(name)
            self._squares[name] = square if followed is None else followed.to(square.device).lerp_(square, 1 - SQUARES)

    def _forget(self) -> None:
        self._squares.clear()
        self._resting.clear()

    @torch.no_grad()
    def _cut(self) -> None:
        """Find the mask again: exactly as many of the lowest scores go as the plan says."""
        check_trained(self._parameters, named_parameters(self.model), self._step)
        device = next(iter(self._parameters.values())).device
        final = as_budget(self._shares, device)
        values = {name: self._value(name) for name in self.weights.names}
        scores = torch.cat([self._score(name, values[name]).reshape(-1) for name in self.weights.names])
        budget = self.plan.budget(1.0 if self.done else self._step / self.steps, final)
        masks = self.weights.unflatten(budget.lowest(scores))
        for name, value in values.items():
            self._parameters[name].copy_(value)
            if self.plan.returning:
                self._resting[name] = value * masks[name]
        self._frozen.change({name: mask.clone() for name, mask in masks.items()})
        if self.done:
            self._forget()
            if (found := self.count()) != final.total:
                raise BrainsurgeonError(f"exactly {final.total:,} weights were to be pruned, {found:,} are")

    def _value(self, name: str) -> Tensor:
        """Return a weight with the values that its pruned entries had, where they may come back."""
        value = self._parameters[name].detach()
        if name not in self._resting:
            return value.clone()
        pruned = self._frozen.masks[name].to(value.device)
        return torch.where(pruned, self._resting[name].to(value.device, value.dtype), value)

    def _score(self, name: str, value: Tensor) -> Tensor:
        score = value.abs().to(torch.promote_types(value.dtype, torch.float32))
        if self.plan.score_power:
            square = unbiased_square(self._holders[name], self._parameters[name])
            square = self._squares.get(name, torch.zeros_like(score)) if square is None else square
            score = score * (square.to(score.device, score.dtype) + 1e-16).pow(self.plan.score_power / 2)
        if self.plan.returning:
            return score
        return score.masked_fill(self._frozen.masks[name].to(score.device), -1.0)
