"""A small trained network, and a store that breaks a staged run off."""

from dataclasses import dataclass, field
from typing import Any

import torch
from cases import seeded
from torch import Tensor, nn

from brainsurgeon import PruningResult, Surgery
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.state import State


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def trained() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A network that has learnt a rule it can lose."""
    model, x = seeded(build, 0), seeded(lambda: torch.randn(300, 6), 1)
    y = (x[:, 0] > 0).long() + (x[:, 1] + x[:, 2] > 0).long()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, (x, y)


class StoppedError(Exception):
    """The run was broken off."""


@dataclass
class Notebook:
    """Keeps every state; breaks off after stage `stop`, and gives back `start` to a run that is resumed."""

    start: State | None = None
    stop: int | None = None
    states: list[State] = field(default_factory=list)
    spent: float = 0.0

    def load(self) -> State | None:
        return self.start

    def save(self, state: State) -> None:
        self.states.append(state)
        if state.number == self.stop:
            raise StoppedError


def run(toy: tuple[nn.Module, Any], store: Notebook | None = None, **settings: Any) -> PruningResult:
    settings = {"schedule": Stages(4, refits=3, trainings=0), "method": "staged", "sparsity": 0.8, **settings}
    common = {name: settings.pop(name) for name in ("loss", "seed", "callback") if name in settings}
    return Surgery(toy[0], toy[1], **common).prune(store=store, **settings)


def same(one: PruningResult, other: PruningResult) -> bool:
    """Bit by bit: weights, masks and the record of how they came about."""
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    masks = zip(one.masks.values(), other.masks.values(), strict=True)
    equal = all(torch.equal(a, b) for a, b in [*pairs, *masks])
    return equal and one.loss_after == other.loss_after
