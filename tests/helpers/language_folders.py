"""Small language models of random weights in Hugging Face folders, with a tokenizer of words and a text of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

WORDS = 40


def small_model(kind: str = "llama", blocks: int = 3, tied: bool = False) -> nn.Module:
    """A causal language model of random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if kind == "gpt2":
        sizes = {"n_embd": 16, "n_layer": blocks, "n_head": 2, "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0}
        return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, **sizes)).eval()
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=blocks,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def write_folder(folder: Path, model: nn.Module, shard: str = "8KB") -> Path:
    """Write a model with its tokenizer, in shards."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model.save_pretrained(folder, max_shard_size=shard)  # type: ignore[operator]
    words = Tokenizer(models.WordLevel({f"w{k}": k for k in range(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(folder)
    return folder


def write_text(path: Path, tokens: int, seed: int = 0) -> Path:
    """Write so many words at random."""
    drawn = torch.randint(WORDS, (tokens,), generator=torch.Generator().manual_seed(seed))
    path.write_text(" ".join(f"w{k}" for k in drawn.tolist()))
    return path
