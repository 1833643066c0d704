"""A training loop with a Pruner: a naive twin, exact counts, zeros between cuts, resume bit for bit, refusals."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import CASES, Case, every_case, needs_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon import BrainsurgeonError, Pruner
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.training.held import own_square, unbiased_square

INPUTS, TARGETS = (
    torch.randn(64, 6, generator=torch.Generator().manual_seed(1)),
    torch.randint(3, (64,), generator=torch.Generator().manual_seed(2)),
)


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).to(dtype)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-3)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, pruner: Pruner, first: int, last: int) -> None:
    dtype = next(model.parameters()).dtype
    for step in range(first, last):
        part = slice(step % 4 * 16, step % 4 * 16 + 16)
        optimizer.zero_grad()
        F.cross_entropy(model(INPUTS[part].to(dtype)), TARGETS[part]).backward()
        optimizer.step()
        pruner.step()


def twin(steps: int, sparsity: float, power: float, cuts: int, returning: bool) -> list[Tensor]:
    """The masks after every step of plain gradient descent, all by hand, in float64."""
    model = network(torch.float64)
    weights = [model[0].weight, model[2].weight]
    size = sum(w.numel() for w in weights)
    mask, value, square, found, made = torch.zeros(size, dtype=torch.bool), None, None, [], 0
    for step in range(1, steps + 1):
        part = slice((step - 1) % 4 * 16, (step - 1) % 4 * 16 + 16)
        model.zero_grad()
        F.cross_entropy(model(INPUTS[part].double()), TARGETS[part]).backward()
        with torch.no_grad():
            for p in (model[0].bias, model[2].bias):
                p -= 0.1 * p.grad
            w = torch.cat([p.reshape(-1) for p in weights])
            gradient = torch.cat([p.grad.reshape(-1) for p in weights]) * ~mask
            w = w - 0.1 * gradient
            square = gradient**2 if square is None else 0.99 * square + 0.01 * gradient**2
            share = step / steps / 0.7
            due = cuts if share >= 1 else int(share * cuts)
            if due > made:
                made = due
                kept = w if value is None or not returning else torch.where(mask, value, w)
                count = (
                    math.ceil(sparsity * size)
                    if share >= 1
                    else math.ceil(math.ceil(sparsity * size) * (1 - (1 - share) ** 4))
                )
                score = kept.abs() * (square + 1e-16) ** (power / 2)
                order = sorted(range(size), key=lambda i: (-1.0 if mask[i] and not returning else float(score[i]), i))
                mask = torch.zeros(size, dtype=torch.bool)
                mask[order[:count]] = True
                value, w = kept, kept * ~mask
            offset = 0
            for p in weights:
                p.copy_(w[offset : offset + p.numel()].view_as(p))
                offset += p.numel()
        found.append(mask.clone())
    return found


@pytest.mark.parametrize("returning", [True, False])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("cuts", [5, 1000])
def test_the_masks_of_every_step_are_those_of_a_naive_twin(cuts: int, power: float, returning: bool) -> None:
    model = network(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pruner = Pruner(model, optimizer, 0.8, steps=30, cuts=cuts, score_power=power, returning=returning)
    changes = 0
    for step, wanted in enumerate(twin(30, 0.8, power, cuts, returning)):
        before = torch.cat([mask.reshape(-1) for mask in pruner.masks.values()])
        train(model, optimizer, pruner, step, step + 1)
        found = torch.cat([mask.reshape(-1) for mask in pruner.masks.values()])
        assert torch.equal(found, wanted)
        changes += bool((before & ~found).any())
    assert returning or not changes
    assert pruner.done
    assert pruner.count() == math.ceil(0.8 * 90)


def test_a_pruned_weight_comes_back_with_the_value_it_had() -> None:
    layer = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, 3.0]]))
    pruner = Pruner(layer, torch.optim.SGD(layer.parameters(), 0.1), 0.3, steps=10, end=1.0, score_power=0)
    pruner.step()
    assert layer.weight.tolist() == [[0.0, 2.0, 3.0]]
    with torch.no_grad():
        layer.weight[0, 1] = 0.5
    pruner.step()
    assert layer.weight.tolist() == [[1.0, 0.0, 3.0]]


@every_case
def test_every_kind_of_network_ends_with_the_exact_count(case: Case) -> None:
    model = case.model()
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    pruner = Pruner(model, optimizer, 0.7, steps=10)
    loss = BatchLoss(model, case.loss)
    last = -1
    for step in range(12):  # going on after the end is fine
        optimizer.zero_grad()
        loss(case.data()).backward()
        optimizer.step()
        pruner.step()
        assert pruner.count() == pruner.pruned >= last
        assert pruner.done == (step + 1 >= 7)
        last = pruner.pruned
    size = find_weights(model).size
    assert pruner.pruned == exact_count(0.7, size)
    assert pruner.sparsity == pruner.pruned / size


@given(
    sparsity=st.floats(0.01, 0.99).map(lambda r: round(r, 3)),
    steps=st.integers(3, 60),
    cuts=st.integers(1, 80),
    end=st.sampled_from([0.7, 0.9, 1.0]),
    budget=st.sampled_from(["global", "uniform"]),
)
@settings(max_examples=40, deadline=None)
def test_the_count_is_exact_for_any_schedule(sparsity: float, steps: int, cuts: int, end: float, budget: str) -> None:
    model = network()
    pruner = Pruner(model, sgd(model), sparsity, steps=steps, cuts=cuts, end=end, budget=budget)
    counts = []
    for _ in range(steps):
        pruner.step()
        counts.append(pruner.pruned)
    assert pruner.done
    assert counts == sorted(counts)
    assert pruner.count() == exact_count(sparsity, 90)


@pytest.mark.parametrize("make", [sgd, adamw])
@pytest.mark.parametrize("stop", [1, 13, 20, 21, 35])
def test_a_checkpoint_resumes_to_the_same_masks_and_weights(
    make: Callable[[nn.Module], torch.optim.Optimizer], stop: int
) -> None:
    whole = network()
    optimizer = make(whole)
    through = Pruner(whole, optimizer, 0.8, steps=30, cuts=9)
    train(whole, optimizer, through, 0, 40)
    model = network()
    optimizer = make(model)
    pruner = Pruner(model, optimizer, 0.8, steps=30, cuts=9)
    train(model, optimizer, pruner, 0, stop)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), pruner.state_dict()], file)
    train(model, optimizer, pruner, stop, stop + 3)  # what comes later must not reach the checkpoint
    file.seek(0)
    states = torch.load(file, weights_only=True)
    again = network()
    optimizer = make(again)
    resumed = Pruner(again, optimizer, 0.8, steps=30, cuts=9)
    for part, state in zip((again, optimizer, resumed), states, strict=True):
        part.load_state_dict(state)
    train(again, optimizer, resumed, stop, 40)
    assert all(torch.equal(mask, resumed.masks[name]) for name, mask in through.masks.items())
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in whole.state_dict().items())


@pytest.mark.parametrize("make", [sgd, adamw])
def test_a_pruner_that_is_done_goes_on_from_an_earlier_state(
    make: Callable[[nn.Module], torch.optim.Optimizer],
) -> None:
    model = network()
    optimizer = make(model)
    pruner = Pruner(model, optimizer, 0.8, steps=30, cuts=9)
    parts = (model, optimizer, pruner)
    train(model, optimizer, pruner, 0, 6)
    states = [copy.deepcopy(part.state_dict()) for part in parts]
    train(model, optimizer, pruner, 6, 40)
    assert pruner.done
    assert not pruner.state_dict()["squares"]
    masks, values = pruner.masks, copy.deepcopy(model.state_dict())
    for part, state in zip(parts, states, strict=True):
        part.load_state_dict(state)
    train(model, optimizer, pruner, 6, 40)
    assert all(torch.equal(mask, pruner.masks[name]) for name, mask in masks.items())
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in values.items())


def test_a_state_in_memory_is_not_changed_by_later_steps() -> None:
    model = network()
    optimizer = sgd(model)
    pruner = Pruner(model, optimizer, 0.8, steps=30)
    train(model, optimizer, pruner, 0, 9)
    state = pruner.state_dict()
    before = copy.deepcopy(state)
    train(model, optimizer, pruner, 9, 15)
    for part in ("masks", "resting", "squares"):
        assert all(torch.equal(tensor, state[part][name]) for name, tensor in before[part].items())
        assert len(before[part]) == 2


def test_adam_keeps_the_squares_itself() -> None:
    model = network()
    optimizer = adamw(model)
    pruner = Pruner(model, optimizer, 0.8, steps=30)
    train(model, optimizer, pruner, 0, 5)
    assert not pruner.state_dict()["squares"]
    square = own_square(optimizer, model[0].weight)
    assert square is optimizer.state[model[0].weight]["exp_avg_sq"]
    unbiased = unbiased_square(optimizer, model[0].weight)
    assert unbiased is not None
    assert torch.allclose(unbiased, square / (1 - 0.999**5))
    assert own_square(sgd(model), model[0].weight) is None


def test_include_exclude_and_budget_are_those_of_prune() -> None:
    model = network()
    pruner = Pruner(model, sgd(model), 0.5, steps=20, exclude="2")
    assert list(pruner.masks) == ["0.weight"]
    model = network()
    pruner = Pruner(model, sgd(model), 0.5, steps=20, budget={"0": 0.25})
    pruner.finish()
    assert {name: int(mask.sum()) for name, mask in pruner.masks.items()} == {"0.weight": 15, "2.weight": 30}


def test_several_optimizers_share_the_work() -> None:
    model = network()
    pair = [torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.Adam(model[2].parameters(), 0.01)]
    pruner = Pruner(model, pair, 0.6, steps=10)
    for _ in range(10):
        model.zero_grad()
        F.cross_entropy(model(INPUTS), TARGETS).backward()
        for one in pair:
            one.step()
        if not pruner.done:
            assert list(pruner.state_dict()["squares"]) == ["0.weight"]
        pruner.step()
    assert pruner.count() == 54


def test_finish_makes_the_last_cut_at_once() -> None:
    model = network()
    optimizer = sgd(model)
    pruner = Pruner(model, optimizer, 0.9, steps=100)
    train(model, optimizer, pruner, 0, 4)
    assert not pruner.done
    pruner.finish()
    pruner.finish()
    assert pruner.done
    assert pruner.count() == 81


def test_what_is_let_go_may_grow_again() -> None:
    model = network()
    optimizer = sgd(model)
    pruner = Pruner(model, optimizer, 0.9, steps=10)
    pruner.finish()
    pruner.remove()
    train(model, optimizer, pruner, 0, 2)
    with pytest.raises(BrainsurgeonError, match="no longer zero"):
        pruner.count()


def test_a_frozen_base_is_pruned_by_magnitude_while_the_rest_is_trained() -> None:
    model = network()
    model[0].requires_grad_(False)
    dense = model[0].weight.clone()
    optimizer = torch.optim.AdamW(model[2].parameters(), 0.01)
    pruner = Pruner(model, optimizer, 0.5, steps=10, include="0.weight", score_power=0)
    train(model, optimizer, pruner, 0, 10)
    lowest = dense.abs().reshape(-1).argsort()[:30]
    assert pruner.count() == 30
    assert bool(pruner.masks["0.weight"].reshape(-1)[lowest].all())
    assert torch.equal(model[0].weight[~pruner.masks["0.weight"]], dense[~pruner.masks["0.weight"]])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 2}, "2 steps are too few .* Train longer, or prune at once"),
        ({"steps": 10.5}, "steps must be the whole number of optimizer steps"),
        ({"steps": True}, "steps must be the whole number of optimizer steps"),
        ({"end": 0}, "expected end above 0"),
        ({"cuts": 0}, "one cut or more"),
        ({"sparsity": 1.5}, "sparsity must lie strictly between 0 and 1"),
        ({"optimizer": "adam"}, "expected a torch.optim.Optimizer"),
        ({"optimizer": []}, "expected a torch.optim.Optimizer"),
        ({"optimizer": sgd(network())}, "the optimizer does not hold the weight '0.weight'"),
        ({"include": "nothing"}, "matches no parameter"),
        ({"budget": {"9": 0.5}}, "budget pattern '9' matches no layer"),
    ],
)
def test_bad_arguments_are_refused_in_words(changes: dict[str, Any], words: str) -> None:
    model = network()
    arguments = {"optimizer": sgd(model), "sparsity": 0.5, "steps": 100} | changes
    with pytest.raises(BrainsurgeonError, match=words):
        Pruner(model, **arguments)


def test_a_frozen_weight_without_gradients_to_score_it_is_refused() -> None:
    model = network()
    model[0].requires_grad_(False)
    with pytest.raises(BrainsurgeonError, match=r"'0.weight' is frozen .* give score_power=0"):
        Pruner(model, sgd(model), 0.5, steps=10, include="*.weight")


def test_parameters_that_were_replaced_are_refused() -> None:
    model = network()
    pruner = Pruner(model, sgd(model), 0.5, steps=10)
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())
    with pytest.raises(BrainsurgeonError, match=r"'0.weight' is no longer the one .* another device"):
        pruner.step()


def test_a_training_that_diverged_is_named() -> None:
    model = network()
    pruner = Pruner(model, sgd(model), 0.5, steps=10)
    with torch.no_grad():
        model[2].weight[0, 0] = torch.nan
    with pytest.raises(BrainsurgeonError, match=r"'2.weight' holds NaN .* at step 1: training has diverged"):
        pruner.step()


@pytest.mark.parametrize(("name", "value"), [("steps", 60), ("sparsity", 0.7), ("budget", "uniform"), ("cuts", 3)])
def test_a_state_of_other_settings_is_refused(name: str, value: Any) -> None:
    model = network()
    state = Pruner(model, sgd(model), **({"sparsity": 0.5, "steps": 30} | {name: value})).state_dict()
    pruner = Pruner(model, sgd(model), 0.5, steps=30)
    with pytest.raises(BrainsurgeonError, match=f"the state is of a Pruner with {name}="):
        pruner.load_state_dict(state)
    with pytest.raises(BrainsurgeonError, match="no state of a Pruner: it has no masks, resting"):
        pruner.load_state_dict({"step": 1, "settings": {}})


@needs_gpu
@pytest.mark.gpu
def test_a_pruner_moves_with_its_model() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pruner = Pruner(model, optimizer, 0.8, steps=20)
    train(model, optimizer, pruner, 0, 8)
    model.cuda()
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(INPUTS.cuda()), TARGETS.cuda()).backward()
        optimizer.step()
        pruner.step()
    assert pruner.count() == 72


def test_wrappers_around_model_and_optimizer_are_looked_through() -> None:
    model = CASES["linear"].model()

    class Wrapper:
        def __init__(self, optimizer: torch.optim.Optimizer):
            self.optimizer, self.param_groups = optimizer, optimizer.param_groups

    pruner = Pruner(nn.DataParallel(model), Wrapper(sgd(model)), 0.5, steps=10)  # type: ignore[arg-type]
    pruner.finish()
    assert list(pruner.masks) == list(find_weights(model).names)


@pytest.mark.parametrize("sparsity", ["x", 1.5])
def test_a_sparsity_that_is_none_is_refused_in_words(sparsity: Any) -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(BrainsurgeonError, match="sparsity must lie strictly between 0 and 1"):
        Pruner(model, torch.optim.SGD(model.parameters(), 0.1), sparsity, steps=10)


def test_a_budget_that_names_every_layer_needs_no_sparsity() -> None:
    model = nn.Linear(4, 4)
    pruner = Pruner(model, torch.optim.SGD(model.parameters(), 0.1), None, steps=10, budget={"weight": 0.25})
    pruner.finish()
    assert pruner.count() == 4
    with pytest.raises(BrainsurgeonError, match="give the sparsity"):
        Pruner(model, torch.optim.SGD(model.parameters(), 0.1), None, steps=10)
