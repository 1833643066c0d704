"""A store of parts in memory, which can break a run off before or after any of them is stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


class KilledError(Exception):
    """The run was killed."""


@dataclass
class Parts:
    """Keeps copies of what it is given, as a file would; ends the run at its call number `kill` to store something.

    With `first` it ends before anything is stored at that call, else after it.
    """

    kill: int | None = None
    first: bool = False
    parts: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    spent: float = 0.0
    children: dict[str, dict[int, dict[str, Tensor]]] = field(default_factory=dict)

    def save_part(self, number: int, tensors: dict[str, Tensor]) -> None:
        self.calls.append(number)
        if self.first and len(self.calls) == self.kill:
            raise KilledError
        self.parts[number] = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        if len(self.calls) == self.kill:
            raise KilledError

    def load_part(self, number: int) -> dict[str, Tensor] | None:
        found = self.parts.get(number)
        return None if found is None else {name: tensor.clone() for name, tensor in found.items()}

    def child(self, name: str) -> Parts:
        """The store of a method that runs inside another: it counts and kills with this one."""
        own = self.children.setdefault(name, {})
        return Parts(self.kill, self.first, own, self.calls, self.spent, self.children)

    def again(self) -> Parts:
        """The same store for a run that goes on and is not killed."""
        return Parts(parts=self.parts, children=self.children)
