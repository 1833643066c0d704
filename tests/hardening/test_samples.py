"""Every sample that is used is checked, and the message names it; losses that couple samples are noticed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from cases import seeded
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.samples.batches import concatenate, regroup

SMALL = {"num_gradients": 60, "loss_samples": 60, "num_draws": 4}


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return model


def samples(count: int = 200) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 6, generator=generator), torch.randint(3, (count,), generator=generator)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("method", ["cbs", "mp", "staged", "layerwise", "gradual", "auto"])
def test_one_bad_sample_anywhere_is_named_by_its_index_in_the_data(value: float, method: str) -> None:
    x, y = samples(120)
    x[77, 3] = value
    settings = {"num_gradients": 20, "loss_samples": 100} if method == "cbs" else {}
    with pytest.raises(BrainsurgeonError, match=r"1 of its 6 numbers are NaN or infinite.*index 77 of the data"):
        brainsurgeon.prune(network(), (x, y), 0.5, method, **settings)


@pytest.mark.parametrize("method", ["staged", "auto"])
def test_a_bad_sample_of_a_loader_is_named(method: str) -> None:
    x, y = samples(200)
    x[150] = math.nan
    loader = DataLoader(TensorDataset(x, y), 16, shuffle=True, generator=torch.Generator().manual_seed(3))
    with pytest.raises(BrainsurgeonError, match="index 150 of the data set"):
        brainsurgeon.prune(network(), loader, 0.5, method, max_gradients=2000)


def test_a_gradient_that_is_not_finite_where_the_loss_is_names_its_sample() -> None:
    x, y = samples(120)
    x[33] = 0.0

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(6, 3, bias=False)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.map(inputs).abs().sqrt()  # its slope at 0 is infinite

    with pytest.raises(BrainsurgeonError, match=r"gradient of 'map.weight' is NaN.*index 33 of the data"):
        brainsurgeon.prune(Root(), (x, y), 0.5, "cbs", num_gradients=120)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_finetune_names_a_bad_sample_wherever_it_falls(share: float) -> None:
    pruned = brainsurgeon.prune(network(), samples(), 0.5, "mp").model
    x, y = samples()
    x[77] = math.nan
    with pytest.raises(BrainsurgeonError, match="index 77 of the data"):
        brainsurgeon.finetune(pruned, (x, y), epochs=2, held_out_share=share)


def contrastive(output: Tensor, target: Tensor) -> Tensor:
    unit = F.normalize(output, dim=1)
    return F.cross_entropy(unit @ unit.T / 0.5, torch.arange(len(output)))


def test_a_contrastive_loss_is_refused_one_by_one_and_taken_in_groups() -> None:
    with pytest.raises(BrainsurgeonError, match=r"couples the samples of a batch.*gradient_batch"):
        brainsurgeon.prune(network(), samples(), 0.5, "cbs", loss=contrastive, **SMALL)
    settings = {**SMALL, "num_gradients": 20, "gradient_batch": 8}
    result = brainsurgeon.prune(network(), samples(), 0.5, "cbs", loss=contrastive, **settings)
    assert result.pruned == 54
    assert any("couples the samples" in note for note in result.notes)


@pytest.mark.parametrize("method", ["layerwise", "gradual", "auto"])
def test_a_contrastive_loss_is_told_by_methods_that_take_whole_batches(method: str) -> None:
    settings: dict[str, Any] = {} if method == "layerwise" else {"max_gradients": 400}
    result = brainsurgeon.prune(network(), samples(), 0.5, method, loss=contrastive, **settings)
    (told,) = [note for note in result.notes if "couples the samples" in note]
    assert "depends on which of them come together" in told
    for loss in ("cross_entropy", "match"):
        plain = brainsurgeon.prune(network(), samples(), 0.5, method, loss=loss, **settings)
        assert not any("couples" in note for note in plain.notes)


class Siamese(nn.Module):
    """Is called with two parts of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Return what both are."""
        return self.tower(one), self.tower(other)


@pytest.mark.parametrize(("method", "settings"), [("layerwise", {}), ("cbs", {**SMALL, "gradient_batch": 8})])
def test_a_loss_of_pairs_calls_its_model_in_its_own_way(method: str, settings: dict[str, Any]) -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        one, other = (F.normalize(part, dim=1) for part in model(*batch))
        return F.cross_entropy(one @ other.T / 0.5, torch.arange(len(one)))

    data = torch.randn(64, 6), torch.randn(64, 6)
    given = {"num_gradients": 20, **settings} if settings else {}
    result = brainsurgeon.prune(Siamese(), data, 0.5, method, loss=loss, progress=False, **given)
    assert result.pruned == 36
    assert any("couples the samples" in note for note in result.notes)


def test_batch_statistics_are_noticed() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(BrainsurgeonError, match=r"couples the samples of a batch.*gradient_batch"):
        brainsurgeon.prune(model, samples(), 0.5, "wf", **{k: SMALL[k] for k in ("num_gradients", "loss_samples")})


def test_dicts_are_joined_by_key_in_any_order() -> None:
    one = {"a": torch.zeros(2, 3), "b": torch.ones(2, 3)}
    two = {"b": torch.ones(2, 3), "a": torch.zeros(2, 3)}
    whole = concatenate([one, two])
    assert torch.equal(whole["a"], torch.zeros(4, 3))
    assert torch.equal(whole["b"], torch.ones(4, 3))
    (regrouped,) = regroup([one, two], 4)
    assert torch.equal(regrouped["b"], torch.ones(4, 3))


def test_batches_of_other_types_are_not_joined() -> None:
    pieces = list(regroup([torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float64)], 4))
    assert [piece.dtype for piece in pieces] == [torch.float32, torch.float64]


def test_a_held_out_set_of_its_own_is_searched_too() -> None:
    pruned = brainsurgeon.prune(network(), None, 0.5, "mp").model
    x, y = samples(40)
    x[7] = math.inf
    with pytest.raises(BrainsurgeonError, match=r"held-out samples.*index 7 of the data"):
        brainsurgeon.finetune(pruned, samples(), held_out=(x, y), epochs=1)


def test_a_submodules_own_evaluation_mode_is_kept_in_finetune() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).train()
    model[1].eval()
    pruned = brainsurgeon.prune(model, None, 0.5, "mp").model
    before = pruned[1].running_mean.clone()
    tuned = brainsurgeon.finetune(pruned, samples(), epochs=2).model
    assert torch.equal(tuned[1].running_mean, before)
    assert [module.training for module in tuned] == [True, False, True, True]


def test_sparse_embeddings_are_pruned_and_finetuned() -> None:
    model = nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Flatten(), nn.Linear(32, 3))
    generator = torch.Generator().manual_seed(0)
    data = (torch.randint(20, (80, 4), generator=generator), torch.randint(3, (80,), generator=generator))
    result = brainsurgeon.prune(model, data, 0.5, "cbs", **SMALL)
    assert not result.notes
    assert result.model[0].sparse
    for optimizer in ("sgd", "adamw"):
        tuned = brainsurgeon.finetune(result.model, data, epochs=2, optimizer=optimizer)
        assert tuned.pruned == 128
        assert tuned.model[0].sparse


@pytest.mark.parametrize(
    "settings",
    [{"epochs": "x"}, {"epochs": 1.5}, {"learning_rate": math.nan}, {"patience": []}, {"seed": None}, {"warmup": "x"}],
)
def test_wrong_kinds_of_finetune_settings_are_refused_in_words(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(BrainsurgeonError, match=f"{name} must be"):
        brainsurgeon.finetune(network(), samples(), masks={}, **settings)


@pytest.mark.parametrize("kind", ["tensors", "data set"])
@pytest.mark.parametrize(
    ("fisher", "asked", "rows"), [("empirical", 10**9, 60), ("sampled", 10**9, 60), ("exact", 10**5, 180)]
)
def test_gradients_that_the_data_do_not_hold_need_no_room(kind: str, fisher: str, asked: int, rows: int) -> None:
    """A number that would never fit is as good as all there are; three outputs make three rows of a sample."""
    data = samples(60)
    given: Any = data if kind == "tensors" else TensorDataset(*data)
    settings: dict[str, Any] = {"fisher": fisher, "loss_samples": 60}
    found, enough = (brainsurgeon.prune(network(), given, 0.5, "wf", num_gradients=k, **settings) for k in (asked, 600))
    assert all(torch.equal(mask, enough.masks[name]) for name, mask in found.masks.items())
    assert any(f"the data gave {rows} gradients" in note for note in found.notes)


def upstream() -> tuple[nn.Parameter, tuple[Tensor, Tensor]]:
    """Samples that a network of the user's own has made, with its graph behind them."""
    own = nn.Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))
    inputs = torch.randn(120, 6, generator=torch.Generator().manual_seed(1))
    return own, ((inputs @ own).tanh(), inputs[:, 0].gt(0).long())


@pytest.mark.parametrize("method", ["mp", "cbs", "layerwise", "staged", "gradual", "auto", "finetune", "sensitivity"])
def test_samples_with_a_graph_behind_them_are_constants(method: str) -> None:
    own, data = upstream()
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    if method == "finetune":
        brainsurgeon.finetune(model, data, masks={}, epochs=2, progress=False)
    elif method == "sensitivity":
        brainsurgeon.sensitivity(model, data, progress=False)
    else:
        settings = {} if method in ("mp", "cbs", "layerwise") else {"max_gradients": 1000}
        assert brainsurgeon.prune(model, data, 0.5, method, progress=False, **settings).pruned == 72
    assert own.grad is None


@pytest.mark.parametrize("method", ["mp", "layerwise", "gradual", "staged", "auto"])
@pytest.mark.parametrize("form", ["generator", "tensors"])
def test_data_that_were_read_already_are_empty_and_not_too_few(method: str, form: str) -> None:
    model, (inputs, targets) = nn.Linear(6, 3), upstream()[1]
    data = iter([]) if form == "generator" else (inputs[:0], targets[:0])
    with pytest.raises(BrainsurgeonError, match="the data is empty"):
        brainsurgeon.prune(model, data, 0.5, method, progress=False)


@pytest.mark.parametrize("method", ["wf", "layerwise", "gradual"])
def test_a_sum_is_noted(method: str) -> None:
    model, data = nn.Linear(6, 3), upstream()[1]
    settings = {"max_gradients": 300} if method == "gradual" else {}
    loss = nn.CrossEntropyLoss(reduction="sum")
    result = brainsurgeon.prune(model, data, 0.5, method, loss, progress=False, **settings)
    assert any("the loss is no mean" in note for note in result.notes)


@pytest.mark.parametrize("seed", range(10))
def test_outputs_in_a_column_beside_targets_in_a_row_are_told(seed: int) -> None:
    model, (inputs, _) = seeded(lambda: nn.Linear(6, 1), seed), upstream()[1]
    data = inputs.detach(), inputs.detach()[:, 0]
    with pytest.raises(BrainsurgeonError, match=r"the outputs are 64×1 and the targets 64.*reshape one"):
        brainsurgeon.prune(model, data, 0.5, "wf", nn.MSELoss(), progress=False)
