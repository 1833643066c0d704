"""A folder that `from_pretrained` reads, with the masks and the record beside the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.masks import write_masks
from brainsurgeon.network.zeros import count_zeros, zero_masks

MASKS, RECORD = "pruning_masks.safetensors", "pruning.json"


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    masks: Mapping[str, Tensor] | None = None,
    record: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Write a pruned Hugging Face model as its own `save_pretrained` does, and its masks beside it.

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
    write(folder, **options)
    seal = write_masks(masks, folder / MASKS, compressed=True)
    told = {"pruned": pruned, "size": sum(mask.numel() for mask in masks.values()), "masks": MASKS, "sha256": seal}
    (folder / RECORD).write_text(json.dumps({**told, **(record or {})}, indent=2))
    return folder
