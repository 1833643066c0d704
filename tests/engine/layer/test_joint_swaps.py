"""The swap formula is exact, and what is carried from swap to swap stays true."""

import pytest
import torch
from layer_cases import dense_fit, layer_case, row_error

from brainsurgeon.engine.layer import joint_swaps as swaps_of_rows
from brainsurgeon.engine.layer.joint_swaps import RowState, joint_swaps, swap_change
from brainsurgeon.engine.layer.least_squares import refit
from brainsurgeon.engine.layer.patterns import parse_pattern
from brainsurgeon.engine.layer.standard import inverse, standard_form


def test_the_change_of_a_swap_is_exact() -> None:
    weights, moments = layer_case(1, 9)
    pruned = torch.zeros(1, 9, dtype=torch.bool)
    pruned[0, [1, 4, 6, 7]] = True
    before = dense_fit(weights, moments, pruned)
    kept = (~pruned[0]).nonzero().squeeze(1)
    inverted = torch.linalg.inv(moments[kept][:, kept])
    gradient = ((before - weights) @ moments)[0]
    for p in (1, 4, 6, 7):
        coupling = inverted @ moments[kept, p]
        schur = moments[p, p] - moments[p, kept] @ coupling
        change = swap_change(before[0, kept], inverted.diagonal(), gradient[p], coupling, schur)
        for place, u in enumerate(kept.tolist()):
            after = pruned.clone()
            after[0, p], after[0, u] = False, True
            error = row_error(dense_fit(weights, moments, after), weights, moments)
            expected = error - row_error(before, weights, moments)
            torch.testing.assert_close(change[place], expected[0], rtol=1e-6, atol=1e-9)


def dense_state(weights: torch.Tensor, moments: torch.Tensor, kept: torch.Tensor, listed: torch.Tensor) -> RowState:
    """What is known of one row between two swaps, from the inverse of Ã_SS itself."""
    places = kept.nonzero().squeeze(1)
    inverted = torch.zeros_like(moments)
    inverted[places.unsqueeze(1), places] = torch.linalg.inv(moments[places][:, places])
    fitted = dense_fit(weights, moments, ~kept.unsqueeze(0))
    coupling = moments[listed] @ inverted
    schur = moments[listed][:, listed] - coupling @ moments[:, listed]
    gradient = ((fitted - weights) @ moments)[0, listed]
    rows = (fitted[0], inverted.diagonal(), kept, gradient, coupling, schur, ~kept[listed])
    return RowState(*(each.unsqueeze(0) for each in rows))


def test_what_is_carried_from_swap_to_swap_is_what_a_fresh_inverse_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """w, diag B, g, v and T after each of three swaps, with the columns of B solved for to the end."""
    monkeypatch.setattr(swaps_of_rows, "COLUMN_STEPS", 40)
    problem = standard_form(*layer_case(1, 14, seed=2))
    weights, moments = problem.weights, problem.moments
    listed, kept = torch.tensor([0, 3, 5, 8, 12]), torch.ones(14, dtype=torch.bool)
    kept[listed] = False
    inverted, _ = inverse(moments)
    state, use = dense_state(weights, moments, kept, listed), torch.ones(1, dtype=torch.bool)
    for chosen, out in ((1, 2), (4, 7), (0, 10)):
        state = swaps_of_rows._bring_back(state, torch.tensor([chosen]), listed.unsqueeze(0), use)
        state = swaps_of_rows._remove(state, torch.tensor([out]), moments, inverted, use)
        kept[listed[chosen]], kept[out] = True, False
        fresh = dense_state(weights, moments, kept, listed)
        free = fresh.free[0]
        assert torch.equal(state.kept, fresh.kept)
        assert torch.equal(state.free, fresh.free)
        torch.testing.assert_close(state.weights, fresh.weights)
        torch.testing.assert_close((state.diagonal * kept), fresh.diagonal * kept)
        torch.testing.assert_close(state.gradient[:, free], fresh.gradient[:, free])
        torch.testing.assert_close(state.coupling[:, free], fresh.coupling[:, free])
        torch.testing.assert_close(state.schur[:, free][..., free], fresh.schur[:, free][..., free])


@pytest.mark.parametrize("name", ["row", "2:4"])
def test_one_round_takes_the_best_single_swap(name: str) -> None:
    """With all candidates listed and one swap allowed, nearly the best of all pairs is taken."""
    weights, moments = layer_case(6, 12, seed=3)
    pattern = parse_pattern(name)
    pruned = torch.rand(6, 3, 4, generator=torch.Generator().manual_seed(0)).argsort(-1).flatten(1) < 2
    problem = standard_form(weights, moments)
    inverted, _ = inverse(problem.moments)
    distance = refit(problem, pruned, inverted, None, 1e-10, 100).distance
    trial = joint_swaps(problem, pattern, pruned, distance, inverted, torch.ones(6, dtype=torch.long), 12)
    error = row_error(dense_fit(weights, moments, trial), weights, moments)
    start = row_error(dense_fit(weights, moments, pruned), weights, moments)
    for row in range(6):
        best = start[row]
        for p in pruned[row].nonzero().flatten().tolist():
            for u in (~pruned[row]).nonzero().flatten().tolist():
                if name == "2:4" and p // 4 != u // 4:
                    continue
                after = pruned[row : row + 1].clone()
                after[0, p], after[0, u] = False, True
                one = weights[row : row + 1]
                best = torch.minimum(best, row_error(dense_fit(one, moments, after), one, moments)[0])
        assert int((trial[row] != pruned[row]).sum()) == 2
        assert start[row] - error[row] >= 0.8 * (start[row] - best)
    assert pattern.feasible(trial, 36)
