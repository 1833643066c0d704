"""Gradients of many samples at once on Hugging Face's models, with masks of padding: batched, and those of autograd."""

import pytest
import torch
from cases import seeded
from torch import Tensor, nn

from brainsurgeon.network.autograd import loss_gradients
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.rows import PREFIX, choose_rows
from brainsurgeon.samples.batches import cut

transformers = pytest.importorskip("transformers")
SAMPLES, LENGTH, WORDS = 4, 8, 40
SIZES = {"vocab_size": WORDS, "max_position_embeddings": 16, "hidden_size": 8, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "intermediate_size": 12}
SHORT = {"vocab_size": WORDS, "max_position_embeddings": 16, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}
GPT2 = {"vocab_size": WORDS, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "bos_token_id": 0}


def model_of(kind: str) -> nn.Module:
    name, sizes = {
        "bert": ("BertForSequenceClassification", SIZES),
        "mpnet": ("MPNetForSequenceClassification", SIZES),
        "distilbert": ("DistilBertForSequenceClassification", SHORT),
        "gpt2": ("GPT2LMHeadModel", GPT2 | {"eos_token_id": 0}),
        "llama": ("LlamaForCausalLM", SIZES),
    }[kind]
    model = getattr(transformers, name)
    return seeded(lambda: model(model.config_class(**sizes)), 0).double().eval().requires_grad_(False)


def samples(kind: str) -> dict[str, Tensor]:
    """Four sentences, two of them padded: each is a group of its own."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, WORDS, (SAMPLES, 1, LENGTH), generator=generator)
    mask = torch.ones_like(tokens)
    mask[1, :, 6:], mask[3, :, 3:] = 0, 0
    causal = kind in ("gpt2", "llama")
    labels = tokens.masked_fill(mask == 0, -100) if causal else torch.tensor([[0], [1], [1], [0]])
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


@pytest.mark.parametrize("kind", ["bert", "mpnet", "distilbert", "gpt2", "llama"])
def test_padded_sentences_are_batched_and_have_autograds_gradients(kind: str) -> None:
    model, groups = model_of(kind), samples(kind)
    loss = BatchLoss(model, "model")
    names = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    parameters = {PREFIX + name: model.get_parameter(name).detach() for name in names}
    rows, notes = choose_rows(loss, parameters, groups)
    assert notes == ()
    found = rows(parameters, groups)
    for k in range(SAMPLES):
        expected = loss_gradients(loss, names, cut(groups, k))
        for name in names:
            assert torch.allclose(found[PREFIX + name][k], expected[name], rtol=1e-9, atol=1e-12), name
