"""What a candidate found is the same after it was kept on disk."""

import math

import pytest
import torch
from cases import seeded
from stores import Parts
from torch import nn

from brainsurgeon.pruning.auto.found import Found, first_found, load_found, save_found


def network() -> nn.Module:
    """With buffers, of which one is a whole number."""
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


def found(loss: float = 0.25) -> Found:
    model = seeded(network, 0)
    model[1].running_mean.fill_(2.0)
    model[1].num_batches_tracked.fill_(7)
    mask = torch.arange(12).view(3, 4) < 5
    return Found(loss, 1200, {"0.weight": mask}, model, ("a note", "ein Wörtchen"), {"learning_rate": 0.1})


@pytest.mark.parametrize("loss", [0.25, math.inf])
def test_all_of_it_comes_back_with_buffers_and_words(loss: float) -> None:
    store, before = Parts(), found(loss)
    save_found(store, before)
    other = seeded(network, 1)
    after = load_found(store, other)
    assert after is not None
    assert after.model is other
    for name, value in before.model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    assert (after.loss, after.gradients, after.notes, after.record) == (loss, 1200, before.notes, before.record)
    assert list(after.masks) == ["0.weight"]
    assert torch.equal(after.masks["0.weight"], before.masks["0.weight"])


def test_buffers_that_grew_come_back_and_caches_are_made_again() -> None:
    store, before, other = Parts(), found(), seeded(network, 1)
    for model, size in ((before.model, 5), (other, 2)):
        model.register_buffer("seen", torch.full((size,), 3.0))
        model.register_buffer("cache", torch.zeros(size), persistent=False)
    before.model.register_buffer("late", torch.ones(2))
    save_found(store, before)
    load_found(store, other)
    assert other.get_buffer("seen").tolist() == [3.0] * 5
    assert other.get_buffer("late").tolist() == [1.0, 1.0]
    assert other.get_buffer("cache").shape == (2,)


def test_where_nothing_was_kept_the_model_is_left_alone() -> None:
    model = seeded(network, 1)
    before = model[0].weight.clone()
    assert load_found(Parts(), model) is None
    assert torch.equal(model[0].weight, before)


def test_a_cut_made_of_it_has_weights_of_its_own() -> None:
    """Training goes on from the cut; the candidate must stay what was judged."""
    candidate = found()
    cut = candidate.as_outcome(["0.weight"])
    assert cut.masks is candidate.masks
    assert cut.values is not None
    assert torch.equal(cut.values["0.weight"], candidate.model[0].weight)
    cut.values["0.weight"].zero_()
    assert candidate.model[0].weight.any()


def test_alone_what_was_found_is_what_there_is() -> None:
    """Two ranks are in `tests/pruning/gradual/test_ranks.py`."""
    found = Found(0.5, 3, {}, nn.Linear(2, 2))
    assert first_found(found, nn.Linear(2, 2), []) is found
    assert first_found(None, nn.Linear(2, 2), []) is None
