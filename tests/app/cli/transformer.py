"""Small Hugging Face transformers of random weights, as a user would bring them."""

import torch


def classifier() -> dict:
    """BERT with a head for two classes: does a sentence hold more low words than high ones?"""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        num_labels=2,
    )
    model = BertForSequenceClassification(config)
    words = torch.randint(64, (260, 12))
    labels = ((words < 32).sum(1) > 6).long()
    batch = {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": labels}
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        model(**{name: tensor[:200] for name, tensor in batch.items()}).loss.backward()
        optimizer.step()
    return {
        "model": model,
        "loss": "model",
        "data": {name: tensor[:200] for name, tensor in batch.items()},
        "test": {name: tensor[200:] for name, tensor in batch.items()},
    }


def language_model() -> dict:
    """GPT-2, whose output embedding is its input embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=2, n_head=2)
    words = torch.randint(40, (64, 10))
    data = {"input_ids": words, "labels": words}
    return {"model": GPT2LMHeadModel(config), "loss": "model", "data": data, "test": data}
