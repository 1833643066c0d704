"""Modes are changed for a while, and given back however the while ends."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from brainsurgeon.network.modes import (
    dense_gradients,
    for_examination,
    frozen,
    modes_kept,
    own_mode,
    plain_attention,
    unread_masks,
    without_cache,
)


def test_masks_are_looked_at_again_afterwards() -> None:
    pytest.importorskip("transformers")
    from transformers import masking_utils

    own = masking_utils.is_tracing
    with unread_masks():
        assert masking_utils.is_tracing is not own
    assert masking_utils.is_tracing is own


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_whatever_mode_the_caller_is_in(mode: type) -> None:
    with mode():
        with own_mode():
            weight = torch.ones(3, requires_grad=True)
            assert torch.equal(torch.autograd.grad(weight.square().sum(), weight)[0], 2 * torch.ones(3))
        assert not torch.is_grad_enabled()


def test_the_callers_autocast_is_off_for_a_while_and_a_models_own_is_not() -> None:
    x = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        with own_mode():
            assert (x @ x).dtype == torch.float32
            with torch.autocast("cpu", torch.float16):
                assert (x @ x).dtype == torch.float16
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
    with own_mode():
        assert (x @ x).dtype == torch.float32


def test_training_alone_keeps_the_callers_autocast() -> None:
    x = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16), own_mode(autocast=True):
        assert (x @ x).dtype == torch.bfloat16


@pytest.mark.parametrize("wanted", [True, False])
def test_fused_attention_is_off_while_anyone_works_and_then_as_the_caller_had_it(wanted: bool) -> None:
    fused = torch.backends.mha.get_fastpath_enabled
    torch.backends.mha.set_fastpath_enabled(wanted)
    try:
        first, second = own_mode(), plain_attention()  # as in two threads, of which the one that began first ends first
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not fused()
        second.__exit__(None, None, None)
        assert fused() == wanted
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_what_was_changed_comes_back_after_an_error() -> None:
    """Sparse embeddings, fused attention, the cache of a language model, and the mode of every module."""
    model = nn.Sequential(nn.Embedding(4, 3, sparse=True), nn.Embedding(4, 3), nn.Dropout())
    model[1].eval()
    model.config, model[2].config = SimpleNamespace(use_cache=True), SimpleNamespace(use_cache=False)
    fused = torch.backends.mha.get_fastpath_enabled()

    def fail() -> None:
        with dense_gradients(model), plain_attention(), without_cache(model), modes_kept(model):
            assert not model[0].sparse
            assert not torch.backends.mha.get_fastpath_enabled()
            assert not model.config.use_cache
            model.eval()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [model[0].sparse, model[1].sparse] == [True, False]
    assert torch.backends.mha.get_fastpath_enabled() == fused
    assert [model.config.use_cache, model[2].config.use_cache] == [True, False]
    assert [module.training for module in model] == [True, False, True]


def test_an_examined_copy_is_frozen_in_evaluation_mode_with_dense_gradients() -> None:
    model = for_examination(nn.Sequential(nn.EmbeddingBag(4, 3, sparse=True), nn.Dropout()), torch.device("meta"))
    assert not any(module.training for module in model.modules())
    assert not model[0].sparse
    assert not model[0].weight.requires_grad
    assert model[0].weight.is_meta


def test_frozen_parameters_ask_for_gradients_again_wherever_they_were_made() -> None:
    plain = nn.Linear(2, 2)
    plain.bias.requires_grad_(False)
    with torch.inference_mode():
        other = nn.Linear(2, 2)
    for model, wanted in ((plain, [True, False]), (other, [True, True])):
        with frozen(model):
            assert not any(parameter.requires_grad for parameter in model.parameters())
        assert [parameter.requires_grad for parameter in model.parameters()] == wanted
