"""A certificate never claims more than is true, is tight where it can be, and keeps no gradients in memory."""

from __future__ import annotations

import gc
import pickle
import weakref
from itertools import combinations

import numpy as np
import pytest
import torch
from cases import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import lowest
from toys import Toy, make_toy, mask_of, one_group, toys

import brainsurgeon
from brainsurgeon import BrainsurgeonError, Surgery
from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Gram
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.exact import certificate as module
from brainsurgeon.exact import certify
from brainsurgeon.exact.continuous import Continuous
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.one_shot import OneShot


def cheapest(quadratic: QuadraticModel, budget: Budget) -> float:
    """The least cost of any mask that meets the budget, by enumeration."""
    choices = [[]]
    for group, count in zip(budget.groups, budget.counts, strict=True):
        choices = [[*old, *new] for old in choices for new in combinations(group.tolist(), count)]
    return min(quadratic.costs([mask_of(P, quadratic.size) for P in choices]))


@pytest.fixture
def relaxations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 0)


@settings(max_examples=40, deadline=None)
@given(toy=toys(), data=st.data())
def test_small_problems_are_certified_to_optimality(toy: Toy, data: st.DataObject) -> None:
    budget = one_group(toy.size, data.draw(st.integers(0, toy.size)))
    quadratic = toy.quadratic()
    pruned = lowest(quadratic, budget)
    found = certify(quadratic, budget, pruned, 20.0)
    best = cheapest(quadratic, budget)
    assert found.objective == pytest.approx(quadratic.cost(pruned))
    assert found.lower_bound == pytest.approx(best, rel=1e-6, abs=1e-9)
    assert found.status == ("optimal" if found.objective <= best * (1 + 1e-7) + 1e-12 else "optimum known")


@pytest.mark.usefixtures("relaxations_only")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("K", [3, 30])
def test_the_relaxations_never_claim_too_much(seed: int, K: int) -> None:
    """With few and many gradients, in blocks, with a first-order term, and in groups of a budget."""
    toy = make_toy(seed, K, 12, blocks=[slice(0, 5), slice(5, 12)] if seed % 2 else None)
    linear = np.random.default_rng(seed).normal(size=12) * 0.1 if seed % 3 == 0 else None
    quadratic = toy.quadratic(linear=linear)
    groups = (torch.arange(0, 12, 2), torch.arange(1, 12, 2))
    for budget in (one_group(12, 7), Budget(groups, (2, 4))):
        found = certify(quadratic, budget, lowest(quadratic, budget), 5.0)
        best = cheapest(quadratic, budget)
        assert set(found.bounds) == {"spectral", "Lagrangian"}
        assert max(found.bounds.values()) <= best + 1e-9
        assert found.bounds["Lagrangian"] >= found.bounds["spectral"] - 1e-9
        assert found.status == "relaxation solved"


def test_a_gram_matrix_is_bounded_too() -> None:
    """Any curvature will do: here four rows that share the moments of their five inputs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5))
    moments = torch.from_numpy((X.T @ X / 50)[None])
    curvature = Gram(moments, torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64), 1e-3)
    quadratic = QuadraticModel(torch.from_numpy(rng.normal(size=20)), [slice(0, 20)], [curvature])
    groups = (torch.arange(10), torch.arange(10, 20))
    budget = Budget(groups, (4, 6))
    found = certify(quadratic, budget, lowest(quadratic, budget), 1.0)
    assert found.lower_bound <= cheapest(quadratic, budget) + 1e-12
    assert found.lower_bound > 0.3 * found.objective


def test_a_wide_gap_is_called_so_and_no_time_is_no_error() -> None:
    toy = make_toy(3, 4, 600)
    quadratic, budget = toy.quadratic(), one_group(600, 300)
    dearest = budget.lowest(-quadratic.weights.abs())
    found = certify(quadratic, budget, dearest, 0.0)
    assert found.status == "time limit"
    assert 0 <= found.lower_bound < found.objective
    assert "does not tell a bad mask from a weak bound" in found.summary()
    with pytest.raises(BrainsurgeonError, match="time_limit"):
        certify(quadratic, budget, dearest, float("nan"))
    with pytest.raises(BrainsurgeonError, match="exactly 300"):
        certify(quadratic, budget, torch.zeros(600, dtype=torch.bool))


def test_an_interrupt_leaves_a_valid_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = make_toy(4, 4, 400)
    quadratic, budget = toy.quadratic(), one_group(400, 200)
    image, calls = Continuous.image, []

    def interrupted(self: Continuous, y: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return image(self, y)

    monkeypatch.setattr(Continuous, "image", interrupted)
    found = certify(quadratic, budget, lowest(quadratic, budget), 60.0)
    assert found.status == "interrupted"
    assert found.lower_bound <= found.objective


def surgery_of(name: str = "linear") -> Surgery:
    case = CASES[name]
    return Surgery(case.model(), case.data(), case.loss, num_gradients=24, damping=1e-2, progress=False)


def quadratic_of(surgery: Surgery) -> QuadraticModel:
    method = make_method("wf", surgery.settings)
    assert isinstance(method, OneShot)
    quadratic = surgery.examined(method.examining, True).quadratic
    assert quadratic is not None
    return quadratic


def test_a_result_certifies_itself_while_its_surgery_lives() -> None:
    surgery = surgery_of()
    results = [surgery.prune(0.6, method) for method in ("wf-s", "polish", "mp")]
    found = [result.certify(time_limit=2.0) for result in results]
    masks = [torch.cat([mask.reshape(-1) for mask in result.masks.values()]) for result in results]
    quadratic = quadratic_of(surgery)
    for certificate, mask in zip(found, masks, strict=True):
        assert certificate.objective == pytest.approx(quadratic.cost(mask))
    assert found[1].objective <= min(found[0].objective, found[2].objective)
    # The gradients are stored in float32: costs computed in two ways agree to seven digits or so.
    assert max(certificate.lower_bound for certificate in found) <= found[1].objective * (1 + 1e-6)


def test_a_result_does_not_keep_the_gradients_alive_unless_asked() -> None:
    surgery = surgery_of()
    result = surgery.prune(0.6, "wf-s")
    watched = weakref.ref(quadratic_of(surgery).curvatures[0])
    assert result.certify(0.1).lower_bound <= result.certify(0.1).objective
    del surgery
    gc.collect()
    assert watched() is None
    with pytest.raises(BrainsurgeonError, match="certifiable=True"):
        result.certify()
    case = CASES["linear"]
    kept = brainsurgeon.prune(
        case.model(), case.data(), 0.6, "mp", case.loss, num_gradients=24, progress=False, certifiable=True
    )
    assert kept.certify(0.5).gap < 1


def test_a_result_that_was_stored_has_no_model_to_refer_to() -> None:
    surgery = surgery_of()
    result = pickle.loads(pickle.dumps(surgery.prune(0.6, "wf-s")))
    with pytest.raises(BrainsurgeonError, match="are gone"):
        result.certify()
