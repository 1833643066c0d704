"""Count the operations and bytes of pruning Llama-like models on many ranks, and print the tables.

    python -m experiments.ranks_growth

Seconds come from the rates of one measured run (SmolLM2-135M on an H200): its matrices are far too small to fill the
device, so larger models run at higher rates, and the minutes are upper bounds.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

TOKENS = 128 * 1024
MOMENTS, LAYERS, REST = 10.0, 13.0, 12.0
"""Seconds of the measured run: moments, layers, and the rest of 35 s."""
PRODUCTS, FACTORS = 200, 7
"""Of a layer of R x m: products of 2Rm² operations, and factors with inverses of m³, counted in the solver."""

STEP, PASSES = 8 * 1024, 8
"""Tokens of a training step, and operations for each of them and each weight: 6 of the student, 2 of its teacher."""
HELD = 32
"""Bytes of training for each weight: weight, mask, gradient and its square, two moments; the model and its teacher."""


@dataclass(frozen=True)
class Llama:
    """The sizes of a model's blocks: hidden width, width of keys and values, inner width, number."""

    name: str
    width: int
    keys: int
    inner: int
    blocks: int

    @property
    def groups(self) -> list[list[tuple[int, int]]]:
        """R x m of the layers of a block, by the input that they share, in the order of the calls."""
        wide, inner = self.width, self.inner
        return [
            [(wide, wide), (self.keys, wide), (self.keys, wide)],
            [(wide, wide)],
            [(inner, wide)] * 2,
            [(wide, inner)],
        ]

    @property
    def weights(self) -> int:
        """The weights in the blocks' linear layers."""
        return self.blocks * sum(rows * inputs for group in self.groups for rows, inputs in group)

    def moments(self) -> float:
        """Return the operations of the passes up to each group and of the products xxᵀ, of all tokens."""
        total, before = 0, 0
        for group in self.groups:
            total += before + group[0][1] ** 2
            before += sum(rows * inputs for rows, inputs in group)
        return 2.0 * TOKENS * total * self.blocks

    def solve(self, ranks: int = 1, by_rows: bool = True) -> float:
        """Return the operations of the busiest rank for its rows, or for its layers."""
        total = 0.0
        for group in self.groups:
            costs = [2.0 * PRODUCTS * rows * inputs**2 for rows, inputs in group]
            factors = [FACTORS * float(inputs) ** 3 for _, inputs in group]
            if by_rows:
                total += sum(costs) / ranks + sum(factors)
            else:
                loads = [0.0] * ranks
                for cost in sorted((c + f for c, f in zip(costs, factors, strict=True)), reverse=True):
                    loads[loads.index(min(loads))] += cost
                total += max(loads)
        return total * self.blocks

    def summed_bytes(self) -> float:
        """Return the bytes of the moments, added up over the ranks in float64."""
        return 8.0 * self.blocks * sum(group[0][1] ** 2 for group in self.groups)

    def step(self, ranks: int) -> float:
        """Return the operations of a rank in a training step; attention itself is left out."""
        return float(PASSES * STEP * self.weights) / ranks

    def sent_bytes(self, ranks: int) -> float:
        """Return the bytes that a rank sends in a step: gradients in float32, added up in a ring."""
        return 2 * (ranks - 1) / ranks * 4.0 * self.weights

    def minutes(self, ranks: int, by_rows: bool) -> float:
        """Return the minutes of a whole run at the measured rates; sending is left out."""
        seconds = MOMENTS * self.moments() / MEASURED.moments() / ranks + REST * self.weights / MEASURED.weights / ranks
        return (seconds + LAYERS * self.solve(ranks, by_rows) / MEASURED.solve()) / 60


MEASURED = Llama("SmolLM2-135M", 576, 192, 1536, 30)
MODELS = (MEASURED, Llama("7B", 4096, 4096, 11008, 32), Llama("70B", 8192, 1024, 28672, 80))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args(arguments)
    print("| model | weights | passes and moments | layers | moments added up | solutions sent |")
    for model in MODELS:
        sent = 5.0 * model.weights  # a float32 and a byte of the mask
        numbers = [model.weights, model.moments(), model.solve(), model.summed_bytes(), sent]
        print(f"| {model.name} | " + " | ".join(f"{number:.2g}" for number in numbers) + " |")
    print("| model | pattern | 1 | 8 | 64 |")
    for model in MODELS:
        for name, by_rows in (("rows apart", True), ("unstructured", False)):
            cells = [f"{model.minutes(ranks, by_rows):.3g}" for ranks in (1, 8, 64)]
            print(f"| {model.name} | {name} | {' | '.join(cells)} |")
    print("| model | step on 1 | step on 8 | sent by each of 8 | held by each |")
    for model in MODELS:
        numbers = [model.step(1), model.step(8), model.sent_bytes(8), float(HELD * model.weights)]
        print(f"| {model.name} | " + " | ".join(f"{number:.2g}" for number in numbers) + " |")


if __name__ == "__main__":
    main()
