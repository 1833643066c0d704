"""Language models as users have them: a local Hugging Face folder (or a GGUF file in one), and text in a file.

model, tokenizer = load_language_model("FOLDER")
tokens = read_tokens(tokenizer, "text.txt", window=1024)
result = brainsurgeon.prune(model, tokens[:128], 0.5, "layerwise", "next_token", exclude=head_of(model))
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import BatchLoss

FEWEST_WINDOWS = 2


def load_language_model(folder: str | Path, dtype: str = "auto") -> tuple[nn.Module, Any]:
    """Load a causal language model and its tokenizer from a local folder; nothing is downloaded."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise BrainsurgeonError("language models need transformers: pip install transformers") from error
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise BrainsurgeonError(f"there is no folder {path}: give a local Hugging Face folder (config.json, weights)")
    packed = sorted(path.glob("*.gguf"))
    extra = {"gguf_file": packed[0].name} if packed and not list(path.glob("*.safetensors")) else {}
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True, **extra)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, **extra)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise BrainsurgeonError(f"{path} cannot be loaded as a causal language model: {error}") from error
    _forget_packing(model)
    return model.eval(), tokenizer


def _forget_packing(model: Any) -> None:
    """Let a model that was unpacked from GGUF be saved as what it is now: plain weights."""
    if getattr(model, "hf_quantizer", None) is None:
        return
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(model, name):
            delattr(model, name)
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def head_of(model: nn.Module) -> tuple[str, ...]:
    """Return the names of a language model's embeddings and head, which are left alone unless they are asked for."""
    output = getattr(model, "get_output_embeddings", lambda: None)()
    return tuple(n for n, module in model.named_modules() if isinstance(module, nn.Embedding) or module is output)


def read_tokens(tokenizer: Any, text: str | Path, window: int = 1024) -> Tensor:
    """Read a text file as whole windows of tokens, side by side: windows × window."""
    if window < 2:
        raise BrainsurgeonError(f"a window must hold at least two tokens, got {window}")
    path = Path(text).expanduser()
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrainsurgeonError(f"{path} cannot be read as text: {error}") from error
    tokens = torch.tensor(tokenizer(content, add_special_tokens=False, verbose=False)["input_ids"], dtype=torch.long)
    count = len(tokens) // window
    if count < FEWEST_WINDOWS:
        raise BrainsurgeonError(
            f"{path} holds {len(tokens):,} tokens, which is {count} window(s) of {window}: give a longer text or a "
            "shorter window"
        )
    return tokens[: count * window].view(count, window)


@torch.no_grad()
def perplexity(model: nn.Module, tokens: Tensor, batch: int = 4) -> float:
    """Return exp of the mean loss over the windows; the first token of each is not predicted."""
    device = next(model.parameters()).device
    loss = BatchLoss(model, "next_token")
    total = sum(float(loss(part.to(device))) * len(part) for part in tokens.split(batch))
    return math.exp(total / len(tokens))
