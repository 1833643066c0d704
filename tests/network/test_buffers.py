"""Expanded buffers get memory of their own, others stay the same tensors; what a forward pass counts is put back."""

import pytest
import torch
from cases import seeded
from torch import nn

import brainsurgeon
from brainsurgeon.network.buffers import buffers_kept, give_buffers, give_memory


def test_expanded_buffers_can_be_written_to_and_others_are_left_alone() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    model.register_buffer("mask", torch.arange(3.0).expand(4, 3))
    model.register_buffer("nothing", None)
    model.register_buffer("column", torch.zeros(5, 2)[:, :1].expand(5, 1))
    before = dict(model.named_buffers())
    assert give_memory(model) is model
    found = dict(model.named_buffers())
    assert found.keys() == before.keys()
    assert all(torch.equal(found[name], before[name]) for name in before)
    assert [name for name in found if found[name] is not before[name]] == ["mask"]
    model.get_buffer("mask")[0].zero_()
    assert model.get_buffer("mask")[1].tolist() == [0, 1, 2]


class Counting(nn.Module):
    """Counts its passes in place, follows a mean by new tensors, and makes a buffer when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("late", None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        hidden = torch.relu(self.first(inputs))
        self.passes += 1
        self.mean = 0.9 * self.mean + 0.1 * hidden.detach().mean(0)
        self.late = torch.ones(2)
        return self.last(hidden)


def _interrupted(model: nn.Module) -> None:
    with buffers_kept(model):
        model(torch.randn(5, 6))
        assert model.get_buffer("passes") == 1
        assert isinstance(model.late, torch.Tensor)
        raise ZeroDivisionError


def test_buffers_that_a_forward_pass_changes_are_put_back() -> None:
    model = Counting()
    model.register_buffer("shared", model.passes)
    before = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    with pytest.raises(ZeroDivisionError):
        _interrupted(model)
    assert model.late is None
    for name, buffer in model.named_buffers(remove_duplicate=False):
        assert buffer is before.get(name, before["passes"])[0]
        assert torch.equal(buffer, before.get(name, before["passes"])[1])


class Grown(nn.Module):
    """Adds what it knows of each position, as many of them as it has ever been given."""

    def __init__(self, known: int, lazily: bool = False):
        super().__init__()
        self.known, self.first, self.last = known, nn.Linear(6, 8), nn.Linear(8, 3)
        if not lazily:
            self.register_buffer("places", torch.ones(known, 6), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        if inputs.shape[1] > self.known:
            self.known = inputs.shape[1]
            self.register_buffer("places", torch.ones(self.known, 6), persistent=False)
        return self.last(torch.relu(self.first(inputs + self.places[: inputs.shape[1]]))).mean(1)


ALL = ["mp", "wf", "cbs", "layerwise", "staged", "gradual", "auto"]


def settings_of(method: str) -> dict[str, int]:
    return {} if method in ("mp", "wf", "cbs", "layerwise") else {"max_gradients": 640}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("known", [0, 2])
@pytest.mark.parametrize("method", ALL)
def test_a_cache_that_grows_goes_with_what_the_module_has_noted(method: str, known: int, in_place: bool) -> None:
    model, inputs = Grown(known, lazily=not known), torch.randn(240, 5, 6)
    data = inputs, inputs.mean((1, 2)).gt(0).long()
    for _ in range(2):
        assert "accuracy" in brainsurgeon.evaluate(model, data, "accuracy")
    fresh = Grown(known, lazily=not known)
    result = brainsurgeon.prune(fresh, data, 0.5, method, progress=False, in_place=in_place, **settings_of(method))
    for each in (model, fresh, result.model):
        assert each(inputs).shape == (240, 3)
    assert result.pruned == 36


class Graph(nn.Module):
    """Its neighbours are a sparse buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("near", torch.eye(6).to_sparse())
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        return self.last(torch.relu(self.first(torch.sparse.mm(self.near, inputs.T).T)))


def test_models_with_sparse_buffers_and_scripted_ones_are_measured() -> None:
    data = torch.randn(40, 6), torch.arange(40) % 3
    scripted = torch.jit.script(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    for model in (Graph(), scripted):
        assert 0 <= brainsurgeon.evaluate(model, data, "accuracy")["accuracy"] <= 100
    assert brainsurgeon.prune(Graph(), data, 0.5, "mp", progress=False).pruned == 36


class Noting(nn.Module):
    """Knows where it is in pictures of one size, which it notes; `lasting` says whether that is part of its state."""

    def __init__(self, in_place: bool, lasting: bool = False):
        super().__init__()
        self.in_place, self.size, self.last = in_place, (4, 3), nn.Linear(12, 3)
        self.register_buffer("places", self._places(), persistent=lasting)

    def _places(self) -> torch.Tensor:
        height, width = self.size
        return (10.0 * torch.arange(height)[:, None] + torch.arange(width)).flatten()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        if inputs.shape[1:] != self.size:
            self.size = tuple(inputs.shape[1:])
            if self.in_place and self.places.numel() == self.size[0] * self.size[1]:
                self.places.copy_(self._places())
            else:
                self.places = self._places()
                self.fresh = True
        return self.last((inputs.flatten(1) + self.places)[:, :12])


@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_module_has_noted_of_a_buffer_is_put_back_with_it(in_place: bool) -> None:
    model = seeded(lambda: Noting(in_place), 0)
    tall, wide = torch.randn(30, 4, 3), torch.randn(30, 3, 4)
    expected = [seeded(lambda: Noting(in_place), 0)(inputs) for inputs in (wide, tall)]
    labels = torch.arange(30) % 3
    first = brainsurgeon.evaluate(model, (wide, labels), loss="cross_entropy")
    assert model.size == (4, 3)
    assert not hasattr(model, "fresh")
    assert brainsurgeon.evaluate(model, (wide, labels), loss="cross_entropy") == first
    assert torch.equal(model(wide), expected[0])
    assert torch.equal(model(tall), expected[1])


def test_a_lasting_buffer_that_has_grown_goes_with_its_note_and_a_cache_does_not() -> None:
    for lasting, size in ((True, (4, 4)), (False, (4, 3))):
        one, other = Noting(False, lasting), Noting(False, lasting)
        one(torch.randn(2, 4, 4))
        give_buffers(one, other)
        assert other.size == size
        assert other.places.tolist() == other._places().tolist()
        assert other.in_place is False


def test_given_buffers_are_where_the_other_model_is() -> None:
    one, other = Noting(False, lasting=True), Noting(False, lasting=True).to("meta")
    one(torch.randn(2, 4, 4))
    give_buffers(one, other)
    assert other.places.shape == (16,)
    assert other.places.is_meta


def test_what_is_no_number_and_what_is_yet_to_come_is_measured() -> None:
    data = torch.randn(40, 6), torch.arange(40) % 3
    model = nn.Sequential(nn.Linear(6, 3))
    model.register_buffer("wide", torch.full((1, 4), torch.nan).expand(3, 4))
    model.register_buffer("unknown", torch.full((2,), torch.nan))
    before = dict(model.named_buffers())
    assert "accuracy" in brainsurgeon.evaluate(model, data, "accuracy")
    assert all(buffer is before[name] for name, buffer in model.named_buffers())
    lazy = nn.Sequential(nn.Linear(6, 8), nn.LazyBatchNorm1d(), nn.Linear(8, 3))
    with buffers_kept(lazy):
        lazy.eval()(data[0])
    assert lazy[1].num_features == 8
    assert lazy(data[0]).shape == (40, 3)


def test_buffers_of_another_size_and_expanded_ones_are_given() -> None:
    one, other = Grown(4), Grown(2)
    give_buffers(one, other)
    assert other.places.shape == (2, 6)
    one.register_buffer("wide", torch.arange(4.0))
    other.wide = None  # type: ignore[assignment]
    give_buffers(one, other)
    assert torch.equal(other.get_buffer("wide"), one.get_buffer("wide"))
    other.register_buffer("wide", torch.zeros(1).expand(4))
    give_buffers(one, other)
    assert torch.equal(other.get_buffer("wide"), one.get_buffer("wide"))


def test_buffers_made_in_inference_mode_and_expanded_ones_are_put_back() -> None:
    with torch.inference_mode():
        model = Counting()
    model.register_buffer("wide", torch.zeros(1, 4).expand(3, 4))
    with buffers_kept(model):
        with torch.inference_mode():
            model(torch.randn(5, 6))
        assert model.passes == 1
    assert model.passes == 0
    assert model.mean.abs().sum() == 0
    assert model.get_buffer("wide").stride() == (0, 1)


@pytest.mark.parametrize("method", ALL)
def test_pruning_a_copy_leaves_the_buffers_of_the_given_model_alone(method: str) -> None:
    torch.manual_seed(0)
    model = Counting()
    inputs = torch.randn(240, 6)
    data = inputs, inputs.argmax(1) % 3
    result = brainsurgeon.prune(model, data, 0.5, method, progress=False, **settings_of(method))
    assert model.passes == 0
    assert model.mean.abs().sum() == 0
    if method in ("mp", "wf", "cbs", "layerwise"):  # without training the copy's are as they were, too
        assert result.model.get_buffer("passes") == 0
