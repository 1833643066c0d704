"""The loss of tokens in pieces is the loss in one piece, and so is its gradient; it holds far less."""

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.network import token_loss
from brainsurgeon.network.token_loss import next_token_loss


def _case(samples: int = 3, places: int = 7, vocabulary: int = 11, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(samples, places, vocabulary, generator=generator, dtype=torch.float64)
    tokens = torch.randint(vocabulary, (samples, places), generator=generator)
    return logits.to(dtype), tokens


def _whole(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("rows", [1, 4, 6, 12, 13])
def test_pieces_of_any_size_give_the_same_loss_and_gradient(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    logits, tokens = _case()
    monkeypatch.setattr(token_loss, "PIECE_BYTES", rows * 4 * logits.shape[-1])
    wanted, found = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    expected, value = _whole(wanted, tokens), next_token_loss(found, tokens)
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    (3 * expected).backward()
    (3 * value).backward()
    torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-10, atol=1e-14)


def test_half_precision_is_summed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, tokens = _case(dtype=torch.bfloat16)
    monkeypatch.setattr(token_loss, "PIECE_BYTES", 64)
    found = logits.clone().requires_grad_()
    value = next_token_loss(found, tokens)
    assert value.dtype == torch.float32
    assert float(value.detach()) == pytest.approx(float(_whole(logits.float(), tokens)), rel=1e-6)
    value.backward()
    wanted = logits.clone().requires_grad_()
    _whole(wanted.float(), tokens).backward()
    torch.testing.assert_close(found.grad, wanted.grad)


def test_gradients_of_single_samples_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, tokens = _case()
    monkeypatch.setattr(token_loss, "PIECE_BYTES", 4 * 4 * logits.shape[-1])

    def loss(of: torch.Tensor, scores: torch.Tensor, some: torch.Tensor) -> torch.Tensor:
        return next_token_loss(of * scores, some)

    one = torch.ones((), dtype=torch.float64)
    found = vmap(grad(loss), in_dims=(None, 0, 0))(one, logits.unsqueeze(1), tokens.unsqueeze(1))
    single = [grad(lambda of, k=k: _whole(of * logits[k : k + 1], tokens[k : k + 1]))(one) for k in range(3)]
    torch.testing.assert_close(found, torch.stack(single))
