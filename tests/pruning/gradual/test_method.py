"""Gradual pruning of whole networks: exact, within its gradients and its time, the same again, and resumed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import CASES, seeded
from gradual_cases import FAST, data, model, run, same, wide
from networks import BY_NAME
from staging import trained
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon import BrainsurgeonError, PruningResult, prune
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.network.distillation import Lesson
from brainsurgeon.pruning.gradual.loop import Plan
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.samples.augment import crop_and_flip


@pytest.mark.parametrize("budget", ["global", "uniform", {"0.weight": 0.5}], ids=str)
@pytest.mark.parametrize(
    "settings", [{}, {"returning": False}, {"score_power": 0.0}, {"first_cut": Layerwise()}], ids=str
)
def test_counts_are_exact_for_every_budget(budget: Any, settings: dict[str, Any]) -> None:
    dense = model()
    before = {name: value.clone() for name, value in dense.state_dict().items()}
    result = prune(dense, data(), 0.6, "gradual", budget=budget, **{**FAST, **settings})
    assert result.pruned == exact_count(0.6, 90) == sum(int(mask.sum()) for mask in result.masks.values())
    for name, mask in result.masks.items():
        weight = result.model.get_parameter(name)
        assert (weight[mask] == 0).all()
        assert mask.all() or not torch.equal(weight[~mask], before[name][~mask])
    if isinstance(budget, dict):
        assert int(result.masks["0.weight"].sum()) == 30
    assert all(torch.equal(value, before[name]) for name, value in dense.state_dict().items())


def test_training_repairs_the_cut() -> None:
    """The loss after the cut alone is far worse than after training with cuts."""
    dense, (x, y) = trained()
    cut = prune(dense, (x, y), 0.8, "mp", progress=False)
    result = prune(dense, (x, y), 0.8, "gradual", max_gradients=10_000, progress=False)
    with torch.no_grad():
        before, after = (F.cross_entropy(r.model.eval()(x), y) for r in (cut, result))
    assert after < 0.8 * before


def others(result: PruningResult) -> dict[str, bool]:
    """Which tensors beside the prunable weights are as they were."""
    dense = model().state_dict()
    return {n: torch.equal(v, dense[n]) for n, v in result.model.state_dict().items() if n not in result.masks}


@pytest.mark.parametrize("samples", [100, 5200], ids=["few", "many"])
def test_repair_of_weights_alone_leaves_all_else_to_the_last_bit(samples: int) -> None:
    assert all(others(run(samples, repair="weights")).values())
    moved = others(run(samples, repair="all"))
    assert not any(moved[name] for name in ("0.bias", "1.weight", "1.bias", "4.bias"))


def test_what_the_user_froze_stays_frozen() -> None:
    dense = model()
    dense[1].requires_grad_(False)
    dense[4].bias.requires_grad_(False)
    result = prune(dense, data(), 0.6, "gradual", **FAST)
    for name in ("1.weight", "1.bias", "4.bias"):
        assert torch.equal(result.model.get_parameter(name), dense.get_parameter(name))
    assert not torch.equal(result.model[0].bias, dense[0].bias)
    assert [p.requires_grad for p in result.model.parameters()] == [p.requires_grad for p in dense.parameters()]


@pytest.mark.parametrize("samples", [100, 5200], ids=["few", "many"])
def test_the_same_seed_gives_the_same_bits_whatever_torchs_own_generator_says(samples: int) -> None:
    torch.manual_seed(1)
    one = run(samples, seed=3)
    torch.manual_seed(2)
    assert same(one, run(samples, seed=3))
    assert not same(one, run(samples, seed=4))


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_of_the_model_is_kept(mode: bool) -> None:
    result = prune(model().train(mode), data(), 0.6, "gradual", **FAST)
    assert all(module.training == mode for module in result.model.modules())


def test_a_run_that_diverges_is_refused_in_words() -> None:
    with pytest.raises(BrainsurgeonError, match=r"training diverged .* give a lower learning_rate"):
        prune(BY_NAME["sequential"].model(), wide(), 0.6, "gradual", **{**FAST, "learning_rate": 1e30})


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_language_models_are_trained_on_their_tokens(name: str) -> None:
    net = BY_NAME[name]
    settings = {"exclude": nn.Embedding, "max_gradients": 100, "learning_rate": 0.01, "progress": False}
    result = prune(net.model(), net.data(), 0.5, "gradual", net.loss, **settings)
    assert result.pruned == exact_count(0.5, result.size)
    assert result.settings["batch_size"] == 8
    assert not result.settings["mixup"]


def test_batches_of_changing_lengths_are_trained_on() -> None:
    """No sample is left out because its batch is not full."""
    lengths = [4, 5, 6, 5, 4, 6]
    batches = [seeded(lambda n=n: torch.randint(23, (5, n)), n) for n in lengths]
    settings = {"exclude": nn.Embedding, "max_gradients": 200, "learning_rate": 0.01, "progress": False}
    result = prune(BY_NAME["llama"].model(), batches, 0.5, "gradual", "next_token", **settings)
    assert result.settings["sample_gradients"] > 100


def test_recurrent_networks_are_trained() -> None:
    case = CASES["lstm"]
    assert prune(case.model(), case.data(), 0.6, "gradual", **FAST).pruned == exact_count(0.6, 175)


def test_samples_and_outputs_are_needed() -> None:
    with pytest.raises(BrainsurgeonError, match="needs training samples"):
        prune(model(), None, 0.5, "gradual")
    case = CASES["dict_batch"]
    with pytest.raises(BrainsurgeonError, match="must see the model's outputs"):
        prune(case.model(), case.data(), 0.5, "gradual", case.loss)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repair": "biases"}, "repair must be"),
        ({"max_gradients": 0}, "max_gradients must be"),
        ({"max_gradients": True}, "max_gradients must be"),
        ({"max_seconds": 0}, "max_seconds must be positive"),
        ({"distil": 1.5}, "distil is a share"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on"),
        ({"batch_size": -1}, "batch_size must be a whole number from 1 on"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"features": -1.0}, "features is a weight of 0 or more"),
        ({"plan": Plan(end=0.0, cuts=0)}, "must have one cut or more"),
        ({"warp": True, "augment": crop_and_flip}, "warp=True goes without `augment`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        Gradual(**settings)


def test_what_is_minimised_depends_on_how_many_samples_are_held_out() -> None:
    few, many = run(100), run(5200)
    assert few.settings["lesson"]["share"] == 1.0
    assert few.settings["lesson"]["temperature"] == 4.0
    assert many.settings["lesson"]["share"] == 0.5
    assert (few.settings["lesson"]["while_better"], many.settings["lesson"]["while_better"]) == (False, True)
    assert (few.settings["mixup"], many.settings["mixup"]) == (True, False)
    assert Gradual(distil=0.3, temperature=2.0, features=5.0).lesson(True, True) == Lesson(0.3, 2.0, 5.0)
    assert Gradual().lesson(False, True, views=2) == Lesson(0.9, 4.0, while_better=True)
    assert Gradual().lesson(True, False, views=2) == Lesson(1.0, 4.0)
    assert Gradual(plan=Plan(cuts=3)).plan.cuts == 3


def test_mixed_samples_that_have_labels_alone_are_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="mix=True mixes samples, and the dense network alone"):
        run(100, mix=True, distil=0.5)


def test_features_of_a_model_that_has_no_layers_to_watch_are_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight

    with pytest.raises(BrainsurgeonError, match="leave features out"):
        prune(Bare(), data(), 0.5, "gradual", distil=0.0, features=5.0, **FAST)
