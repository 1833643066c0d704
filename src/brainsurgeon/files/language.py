"""Language models as users have them: a local Hugging Face folder (or a GGUF file in one), and text in a file.

model, tokenizer = load_language_model("FOLDER")
tokens = read_tokens(tokenizer, "text.txt", window=1024)
result = brainsurgeon.prune(model, tokens[:128], 0.5, "layerwise", "next_token", exclude=head_of(model))
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.on_disk import load_on_disk
from brainsurgeon.network.held import held_in, passing
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.memory import DoesNotFitError, available_bytes, readable
from brainsurgeon.network.modes import evaluated, without_cache
from brainsurgeon.network.partition import find_chain
from brainsurgeon.network.streaming import Stream

FEWEST_WINDOWS = 2


def load_language_model(
    folder: str | Path, dtype: str = "auto", on_disk: str | Path | Literal[True] | None = None
) -> tuple[nn.Module, Any]:
    """Load a causal language model and its tokenizer from a local folder; nothing is downloaded.

    With `on_disk`, a new folder, the weights stay in a copy of the model there, and come into memory block by block:
    for models larger than memory. Layer-wise methods prune it with `in_place=True`, and the folder then is the pruned
    model. The weights have the type that the files give them. With `on_disk=True` there is no copy: it can be run and
    measured in this way, but not pruned.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise BrainsurgeonError("language models need transformers: pip install transformers") from error
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise BrainsurgeonError(f"there is no folder {path}: give a local Hugging Face folder (config.json, weights)")
    packed = sorted(path.glob("*.gguf"))
    if on_disk is None:
        _check_memory(path)
    extra = {"gguf_file": packed[0].name} if packed and not list(path.glob("*.safetensors")) else {}
    try:
        if on_disk is not None:
            model = load_on_disk(path, None if on_disk is True else Path(on_disk).expanduser())
        else:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True, **extra)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, **extra)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise BrainsurgeonError(f"{path} cannot be loaded as a causal language model: {error}") from error
    _forget_packing(model)
    return model.eval(), tokenizer


def _check_memory(folder: Path) -> None:
    """Refuse a model that is larger than the memory that is left, before that is filled."""
    needed = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    free = available_bytes(torch.device("cpu"))
    if free is not None and needed > free:
        raise DoesNotFitError(
            f"the weights in {folder} take {readable(needed)}, and {readable(free)} of memory are free: leave them on "
            'disk (on_disk="NEW-FOLDER", or --on-disk in the command), which the layer-wise methods can prune'
        )


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
    """Return exp of the mean loss over the windows; the first token of each is not predicted.

    All windows go through a model on disk together, block after block.
    """
    loss, parts = BatchLoss(model, "next_token"), list(tokens.split(batch))
    if held := held_in(model):
        return math.exp(_block_by_block(loss, parts, next(iter(held.values())).device))
    device = next(model.parameters()).device
    total = sum(float(loss(part.to(device))) * len(part) for part in parts)
    return math.exp(total / len(tokens))


def _block_by_block(loss: BatchLoss, parts: list[Tensor], device: torch.device) -> float:
    """Return the mean loss, with one block of the model in memory at a time."""
    model = loss.model
    with without_cache(model), evaluated(model):
        with passing(model, device):
            names = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
            chain = find_chain(model, lambda: loss(parts[0][:1]), names)
        if not chain.names:
            raise BrainsurgeonError("the model has no list of blocks to go through one after the other: load it whole")
        stream = Stream(model, loss, [*parts], [], chain, device)
        total = sum(value * len(part) for value, part in zip(stream.losses(), parts, strict=True))
    return total / sum(map(len, parts))
