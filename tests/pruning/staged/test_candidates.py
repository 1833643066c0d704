"""Where a stage may end: w + d_U + s·d_F + μ·d_last, written out."""

from itertools import product

import pytest
import torch
from toys import make_toy, mask_of

from brainsurgeon.engine.update import Independent, Joint
from brainsurgeon.pruning.staged.candidates import LENGTHS, MOMENTA, candidates, moves
from brainsurgeon.pruning.staged.state import FIRST_LENGTH, Choice, State

N = 10
GONE = mask_of([1, 4, 7], N)


def vector(seed: int) -> torch.Tensor:
    return torch.randn(N, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def state(last: torch.Tensor) -> State:
    return State(3, 0.5, vector(0), GONE, last.masked_fill(GONE, 0.0), Choice("gram"))


@pytest.mark.parametrize("last", [vector(1), torch.zeros(N, dtype=torch.float64)], ids=["moving", "at rest"])
def test_every_end_is_the_sum_of_its_three_steps(last: torch.Tensor) -> None:
    """The repair enters once and whole, however long the Newton step is."""
    start, repair = state(last), vector(2)
    newtons = {"loss": vector(3), "distillation": vector(4)}
    alone, *ends = candidates(start, repair, newtons)
    torch.testing.assert_close(alone.values, (start.values + repair).masked_fill(GONE, 0.0))
    momenta = MOMENTA if bool(start.last_step.any()) else (0.0,)
    wanted = list(product(newtons, LENGTHS, momenta))
    assert len(ends) == len(wanted)
    for end, (slope, factor, momentum) in zip(ends, wanted, strict=True):
        length = FIRST_LENGTH * factor
        step = repair + length * newtons[slope] + momentum * start.last_step
        torch.testing.assert_close(end.values, (start.values + step).masked_fill(GONE, 0.0))
        assert (end.choice.slope, end.choice.momentum) == (slope, momentum)
        assert end.length(slope) == pytest.approx(length)


def test_the_last_step_of_an_end_is_how_it_came_there_and_nothing_gone_moves() -> None:
    start = state(vector(1))
    for end in candidates(start, vector(2), {"loss": vector(3)}):
        assert not end.values[GONE].any()
        assert not end.last_step[GONE].any()
        torch.testing.assert_close(end.last_step[~GONE], (end.values - start.values)[~GONE])


def test_the_moves_are_the_update_and_the_newton_steps_of_the_model() -> None:
    """d_U and d_F = −H_SS⁻¹a_S by dense algebra; another update takes the place of the joint one alone."""
    toy = make_toy(3, 6, N)
    problem, slope = toy.problem(3), vector(5)
    H = torch.from_numpy(toy.G.T @ toy.G / len(toy.G)) + toy.damping * torch.eye(N, dtype=torch.float64)
    kept = ~GONE
    newton = torch.zeros(N, dtype=torch.float64)
    newton[kept] = -torch.linalg.solve(H[kept][:, kept], slope[kept])
    for update in (Joint(), Independent()):
        repair, newtons = moves(update, problem, {"loss": slope}, GONE)
        torch.testing.assert_close(repair, update(problem, GONE).double())
        assert newtons.keys() == {"loss"}
        torch.testing.assert_close(newtons["loss"], newton)
