"""A folder that `from_pretrained` reads, with the masks, the record and a model card beside the weights."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.masks import write_masks
from brainsurgeon.files.writing import write_whole
from brainsurgeon.network.zeros import count_zeros, zero_masks

MASKS, RECORD, CARD = "pruning_masks.safetensors", "pruning.json", "README.md"
PIPELINES = {
    "ForCausalLM": "text-generation",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForImageClassification": "image-classification",
    "ForObjectDetection": "object-detection",
    "ForSemanticSegmentation": "image-segmentation",
    "ForAudioClassification": "audio-classification",
    "ForCTC": "automatic-speech-recognition",
}


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    masks: Mapping[str, Tensor] | None = None,
    record: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Write a pruned Hugging Face model as its own `save_pretrained` does, with its masks and a model card beside it.

    `from_pretrained(folder)` reads the model, zeros and all; `brainsurgeon.load_masks` reads the masks from
    `pruning_masks.safetensors`, for `freeze_zeros` and `finetune`. Options go to the model's own `save_pretrained`.
    """
    write = getattr(model, "save_pretrained", None)
    if not callable(write):
        raise BrainsurgeonError(
            f"{type(model).__name__} has no save_pretrained, so it is no Hugging Face model: use brainsurgeon.save"
        )
    masks = dict(zero_masks(model) if masks is None else masks)
    pruned = count_zeros(model, masks)
    folder = Path(folder)
    if (folder / CARD).exists() or (folder / CARD).is_symlink():
        raise BrainsurgeonError(f"{folder / CARD} is there already, where the model card would go: give a new folder")
    write(folder, **options)
    return add_masks(model, folder, masks, pruned, record)


def add_masks(
    model: nn.Module,
    folder: Path,
    masks: Mapping[str, Tensor],
    pruned: int,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write masks, record and model card into the folder of a pruned Hugging Face model, beside what it is read from.

    A card that came with the model it was made of gives way.
    """
    size = sum(file.stat().st_size for kind in ("*.safetensors", "*.bin") for file in folder.glob(kind))
    seal = write_masks(masks, folder / MASKS, compressed=True)
    told = {"pruned": pruned, "size": sum(mask.numel() for mask in masks.values()), "masks": MASKS, "sha256": seal}
    write_whole(folder / RECORD, json.dumps({**told, **(record or {})}, indent=2))
    write_whole(folder / CARD, model_card(model, masks, size, record or {}))
    return folder


def model_card(model: nn.Module, masks: Mapping[str, Tensor], size: int, record: Mapping[str, Any]) -> str:
    """Return the model card: what was pruned, layer by layer, how, what it scores, and how to load it.

    `size` is the bytes of the model's own files; the record may tell method, settings, recipe and scores.
    """
    pruned, weights = sum(int(mask.sum()) for mask in masks.values()), sum(mask.numel() for mask in masks.values())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    method = record.get("method")
    facts = {
        "weights pruned": f"{pruned:,} of {weights:,} ({pruned / max(weights, 1):.2%})",
        "parameters": f"{parameters:,}, {parameters - pruned:,} of them not pruned",
        "bytes on disk": f"{size:,}",
        **({} if method is None else {"method": _code(method)}),
    }
    layers = [(_code(n), "×".join(map(str, m.shape)), f"{int(m.sum()):,}", f"{m.numel():,}") for n, m in masks.items()]
    name = type(model).__name__
    parts = [
        f"---\n{yaml.safe_dump(_header(model), sort_keys=False, allow_unicode=True)}---\n\n# {name}, pruned",
        "Pruned with [brainsurgeon](https://arxiv.org/abs/2203.04466); pruned weights are exactly zero.",
        _table(("", ""), list(facts.items())),
        *_scores(record),
        "## Load it",
        f'```python\nfrom transformers import {name}\n\nmodel = {name}.from_pretrained("path/to/this/folder")\n```',
        f"Its masks, for fine-tuning with the zeros kept: `brainsurgeon.load_masks({MASKS!r}, model)`.",
        "## Layers",
        _table(("layer", "shape", "pruned", "of"), layers),
        *_made(record),
    ]
    return "\n\n".join(parts) + "\n"


def _header(model: nn.Module) -> dict[str, Any]:
    config = getattr(model, "config", None)
    kind, base = getattr(config, "model_type", None), getattr(config, "_name_or_path", None)
    pipeline = next((tag for ending, tag in PIPELINES.items() if type(model).__name__.endswith(ending)), None)
    known = {
        "library_name": "transformers",
        "pipeline_tag": pipeline,
        "base_model": base if isinstance(base, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", base) else None,
        "tags": ["pruning", "sparsity", "brainsurgeon", *([kind] if isinstance(kind, str) and kind else [])],
    }
    return {key: value for key, value in known.items() if value is not None}


def _scores(record: Mapping[str, Any]) -> list[str]:
    """Show the scores that the record has; those after fine-tuning, where there was some."""
    tuned = record.get("finetuned")
    scores = tuned.get("after") if isinstance(tuned, Mapping) else record.get("scores")
    if not isinstance(scores, Mapping) or not scores:
        return []
    rows = [(_code(name), f"{v:.4g}" if isinstance(v, int | float) else "not finite") for name, v in scores.items()]
    return ["## Scores on held-out data", _table(("metric", "value"), rows)]


def _made(record: Mapping[str, Any]) -> list[str]:
    if record.get("recipe"):
        return ["## Recipe", _block(str(record["recipe"]), "yaml")]
    if record.get("settings"):
        return ["## Settings", _block(json.dumps(record["settings"], indent=2, default=str), "json")]
    return []


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---", *("---:",) * (len(head) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(words: Any) -> str:
    """Set a name so that nothing in it is markup."""
    clean = "".join(letter if letter.isprintable() else "\ufffd" for letter in str(words))
    safe = re.sub(r"[\\`*_\[\]|~&<>]", lambda found: f"&#{ord(found[0])};", clean)
    return f"<code>{safe}</code>"


def _block(text: str, kind: str) -> str:
    """Set a text as it is: the fence is longer than any run of backticks in it."""
    fence = "`" * (1 + max([2, *(len(run) for run in re.findall("`+", text))]))
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"
