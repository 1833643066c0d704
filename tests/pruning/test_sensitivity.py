"""What the loss would feel of each layer: foretold as measured, and a budget that is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon import Sensitivity, sensitivity
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.pruning.sensitivities import LayerSensitivity

SOME = (0.5, 0.8, 0.9)


def seeded(make: type[nn.Module] | None = None) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make() if make else nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 4))


def samples(count: int = 300, width: int = 10) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def demo() -> Sensitivity:
    model, data = load_demo()
    images, labels = data.train()
    return sensitivity(model, (images[:600], labels[:600]), sparsities=SOME, max_samples=400, loss_samples=200)


def test_of_a_linear_network_the_change_is_foretold_exactly() -> None:
    """With one layer and a squared distance the loss is its own quadratic model: foretold and measured are the same."""
    x = samples(128)
    layer = nn.Linear(10, 1, bias=False)
    found = sensitivity(layer, x, "match", SOME, max_samples=128, loss_samples=128, damping=1e-9)
    assert found.layers[0].kind == "moments"
    assert found.layers[0].predicted == pytest.approx(found.layers[0].measured, rel=1e-3)
    assert found.loss == 0.0


def test_each_layer_alone_is_pruned_and_the_model_is_left_as_it_was() -> None:
    """The measured change is that of the loss with the very weights that are foretold of, and of no other layer."""
    network, x = seeded(), samples()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    y = torch.randint(4, (300,), generator=torch.Generator().manual_seed(2))
    found = sensitivity(network, (x, y), sparsities=(0.5, 0.95))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [layer.name for layer in found.layers] == ["0.weight", "2.weight"]
    assert found.loss == pytest.approx(float(nn.functional.cross_entropy(network(x), y).detach()), rel=0.05)
    assert all(layer.predicted[0] < layer.predicted[1] for layer in found.layers)
    again = sensitivity(network, (x, y), sparsities=(0.5, 0.95), include="2")
    assert again.layers[0].measured == pytest.approx(found.layers[1].measured)


def test_what_is_foretold_ranks_as_what_is_measured(demo: Sensitivity) -> None:
    assert demo.correlation is not None
    assert demo.correlation > 0.9
    assert all(layer.measured is not None for layer in demo.layers)


class Others(nn.Module):
    """An embedding and a recurrent layer, which are no linear maps, and a layer that nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(12, 6), nn.LSTM(6, 8, batch_first=True)
        self.head, self.idle = nn.Linear(8, 3), nn.Linear(3, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.cell(self.embedding(tokens))[0][:, -1])


@pytest.mark.parametrize("loss", ["cross_entropy", "match"])
def test_layers_of_every_kind_have_a_sensitivity(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens, labels = torch.randint(12, (200, 5), generator=generator), torch.randint(3, (200,), generator=generator)
    data = tokens if loss == "match" else (tokens, labels)
    found = sensitivity(seeded(Others), data, loss, SOME)
    kinds = {layer.name: layer.kind for layer in found.layers}
    assert kinds == {
        "embedding.weight": "Fisher",
        "cell.weight_ih_l0": "Fisher",
        "cell.weight_hh_l0": "Fisher",
        "head.weight": "moments",
        "idle.weight": "not called",
    }
    assert found.layers[-1].predicted == found.layers[-1].measured == (0.0, 0.0, 0.0)
    if loss == "match":  # near the dense weights the distance is its quadratic model; the labels' loss is noisier
        assert found.correlation is not None
        assert found.correlation > 0.9
    monkeypatch.setattr("brainsurgeon.pruning.sensitivity.FISHER_NUMBERS", 1)
    coarse = sensitivity(seeded(Others), data, loss, SOME)
    assert coarse.layers[0].kind == "Fisher diagonal"
    assert all(a <= b for a, b in zip(found.layers[1].predicted, coarse.layers[1].predicted, strict=True))


def test_the_budget_meets_the_sparsity_exactly_and_prune_takes_it(demo: Sensitivity) -> None:
    model, data = load_demo()
    budget = demo.budget(0.9)
    size = sum(layer.size for layer in demo.layers)
    result = brainsurgeon.prune(model, data.train(), 0.9, "mp", budget=budget)
    assert result.pruned == exact_count(0.9, size)
    assert [layer.sparsity for layer in result.layers] == pytest.approx(list(budget.values()), abs=1e-3)
    uniform = brainsurgeon.prune(model, data.train(), 0.9, "mp", budget="uniform")
    assert result.loss_after is not None
    assert uniform.loss_after is not None
    assert result.loss_after < uniform.loss_after


def test_the_budget_spares_the_layer_that_the_loss_feels_most() -> None:
    layers = (
        LayerSensitivity("a", (10, 10), 100, "moments", (1.0, 2.0, 4.0), (-0.1, 0.2, float("inf"))),
        LayerSensitivity("b", (10, 10), 100, "moments", (0.01, 0.02, 0.04), (3.0, 4.0, 5.0)),
    )
    found = Sensitivity(SOME, layers, 0.5, 100)
    assert found.budget(0.5)["a"] < 0.2 < 0.8 < found.budget(0.5)["b"]
    by_measure = found.budget(0.5, by="measured")
    assert by_measure["a"] > by_measure["b"]
    assert sum(found.budget(0.5).values()) == pytest.approx(1.0)
    foretold = Sensitivity(SOME, (LayerSensitivity("a", (2,), 2, "moments", (1.0, 2.0, 4.0)),), 0.5, 100)
    assert foretold.correlation is None
    with pytest.raises(BrainsurgeonError, match="nothing was measured"):
        foretold.budget(0.5, by="measured")
    with pytest.raises(BrainsurgeonError, match='by must be "predicted" or "measured"'):
        found.budget(0.5, by="size")


def test_it_is_saved_as_a_file_to_edit(demo: Sensitivity, tmp_path: Path) -> None:
    written = yaml.safe_load(demo.save(tmp_path / "budget.yaml", 0.8).read_text())
    same = json.loads(demo.save(tmp_path / "budget.json", 0.8).read_text())
    assert written == same
    assert written["budget"] == demo.budget(0.8)
    assert written["sensitivity"]["layers"][0]["predicted"] == list(demo.layers[0].predicted)
    assert (tmp_path / "budget.yaml").read_text().startswith("# What the loss would feel")
    with pytest.raises(BrainsurgeonError, match=r"saved as .yaml, .yml or .json, got 'budget.txt'"):
        demo.save(tmp_path / "budget.txt")


def test_the_table_says_both_and_how_they_agree(demo: Sensitivity) -> None:
    table = demo.table()
    assert table.count("predicted") == table.count("measured") == len(demo.layers)
    assert f"rank correlation of both {demo.correlation:.2f}" in table
    assert "0.95" not in table.splitlines()[0]


def test_nothing_is_measured_where_it_is_not_wanted() -> None:
    found = sensitivity(seeded(), samples(), "match", SOME, measure=False)
    assert found.layers[0].measured is None
    assert "nothing was measured" in found.notes[0]


@pytest.mark.parametrize(
    ("sparsities", "words"),
    [((0.9, 0.5), "must rise"), ((0.5, 0.5), "must rise"), ((), "must rise"), ((0.5, 1.0), "strictly between 0 and 1")],
)
def test_bad_sparsities_are_refused(sparsities: tuple[float, ...], words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        sensitivity(seeded(), samples(), "match", sparsities)
    with pytest.raises(BrainsurgeonError, match="needs samples"):
        sensitivity(seeded(), None)
