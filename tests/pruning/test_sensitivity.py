"""What the loss would feel of each layer: foretold as measured."""

from __future__ import annotations

import pytest
import small
import structures
import torch
from surveys import SOME
from torch import Tensor, nn

from brainsurgeon import Sensitivity, sensitivity
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import clock


def seeded(make: type[nn.Module] | None = None) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make() if make else nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 4))


def samples(count: int = 300, width: int = 10) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1))


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


def test_a_bad_sample_is_named_and_long_work_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "PULSE", 0.0)
    told: list[str] = []
    sensitivity(small.network(), small.samples(), callback=lambda event: told.append(event.stage))
    assert "working" in told
    inputs, targets = small.samples()
    inputs[7] = torch.nan
    with pytest.raises(BrainsurgeonError, match="index 7 of the data"):
        sensitivity(small.network(), (inputs, targets))


def test_padded_texts_go_through_pytorchs_own_transformer() -> None:
    found = sensitivity(structures.seeded(structures.Padded).float(), structures.texts(), sparsities=(0.5,))
    assert all(layer.measured is not None for layer in found.layers)
    assert torch.backends.mha.get_fastpath_enabled()
