"""What a model answers to a batch, beside what was asked for: outputs and targets, in the layout of the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import LOSSES, BatchLoss, LossLike, call, output_loss
from brainsurgeon.network.metrics import CLASSES, LABELS, NUMBERS
from brainsurgeon.samples.batches import Batch

IGNORED = -100
"""The target that losses of classes leave out."""
KINDS: dict[Any, str] = {
    **dict.fromkeys(("cross_entropy", "nll", "next_token", F.cross_entropy, F.nll_loss), CLASSES),
    **dict.fromkeys((nn.CrossEntropyLoss, nn.NLLLoss), CLASSES),
    **dict.fromkeys(("bce_with_logits", F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss), LABELS),
    **dict.fromkeys(("mse", "l1", "huber", F.mse_loss, F.l1_loss, F.huber_loss, F.smooth_l1_loss), NUMBERS),
    **dict.fromkeys((nn.MSELoss, nn.L1Loss, nn.HuberLoss, nn.SmoothL1Loss), NUMBERS),
}


@dataclass(frozen=True)
class Answers:
    """A model's outputs for a batch, the targets, what they are, and the loss; what is not known is None."""

    outputs: Any
    targets: Any
    kind: str | None
    loss: Tensor | None
    language: bool = False

    def arranged(self, kinds: tuple[str, ...], name: str) -> tuple[Tensor, Tensor]:
        """Return outputs and targets as a metric of these kinds takes them; refuse what it cannot be taken of."""
        outputs, targets = self.outputs, self.targets
        if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
            raise BrainsurgeonError(
                f"{name} is of one tensor of outputs and one of targets, which these batches do not give: let them be "
                "(inputs, targets), or hold labels for a model that takes those, or give score as a function of the "
                "model"
            )
        found = [self.kind] if self.kind is not None else _kinds_by_shape(outputs, targets)
        kind = next((kind for kind in found if kind in kinds), None)
        if kind is None:
            what = f"targets that are {found[0]}" if found else "such shapes"
            raise BrainsurgeonError(
                f"{name} is of {' or '.join(kinds)}, and here are {what}: outputs {tuple(outputs.shape)}, targets "
                f"{tuple(targets.shape)} of {targets.dtype}"
            )
        return _laid_out(outputs, targets, kind, name)


def ignored_by(loss: LossLike | None) -> int:
    """Return the target that a loss leaves out."""
    given = loss.keywords if isinstance(loss, partial) else {}
    found = given.get("ignore_index", getattr(loss, "ignore_index", None))
    return found if isinstance(found, int) else IGNORED  # others take None, or a list


def has_targets(batch: Batch, loss: LossLike | None = None) -> bool:
    """Say whether a batch has a target that counts: the loss of one whose targets are all left out is no number."""
    pair = isinstance(batch, list | tuple) and len(batch) == 2
    targets = batch[1] if pair else batch.get("labels") if isinstance(batch, Mapping) else None
    if not isinstance(targets, Tensor) or targets.is_floating_point() or not targets.numel():
        return True
    return bool((targets != ignored_by(loss)).any())


def answer(model: nn.Module, loss: LossLike | None, batch: Batch, outputs_wanted: bool = True) -> Answers:
    """Ask a model for its answers to a batch: once, or twice where a loss of the user's own hides them."""
    if isinstance(batch, Mapping) and "labels" in batch and loss in (None, "model"):
        found = _of_labelled(call(model, batch), batch["labels"], model)
        return found if loss is None or found.loss is not None else replace(found, loss=BatchLoss(model, loss)(batch))
    if loss == "next_token":
        parts = output_loss(loss, model, batch)
        assert parts is not None
        logits = parts.outputs(model, batch)
        tokens = batch["input_ids"] if isinstance(batch, Mapping) else batch if isinstance(batch, Tensor) else batch[0]
        of_tokens = parts.loss(logits, batch)
        return Answers(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), CLASSES, of_tokens, language=True)
    paired = isinstance(batch, list | tuple) and len(batch) == 2
    if loss is None:
        return Answers(call(model, batch[0]), batch[1], None, None) if paired else Answers(None, None, None, None)
    kind = _kind_of(loss)
    if not paired or kind is None:
        shown = paired and outputs_wanted and loss != "model"
        outputs, targets = (call(model, batch[0]), batch[1]) if shown else (None, None)
        return Answers(outputs, _counted(targets, loss), None, BatchLoss(model, loss)(batch))
    outputs, targets = call(model, batch[0]), batch[1]
    function = LOSSES[loss] if isinstance(loss, str) else loss
    value: Tensor | None = function(outputs, targets) if isinstance(outputs, Tensor) else None
    if value is None or value.numel() != 1:  # what is wrong with that is said there
        value = BatchLoss(model, loss)(batch)
    targets = _counted(targets, loss) if kind == CLASSES else targets
    return Answers(outputs, targets, kind if _fits(outputs, targets, kind) else None, value)


def _kind_of(loss: LossLike) -> str | None:
    key = loss.func if isinstance(loss, partial) else loss
    if isinstance(key, nn.Module):
        return next((kind for known, kind in KINDS.items() if isinstance(known, type) and isinstance(key, known)), None)
    return next((kind for known, kind in KINDS.items() if known == key), None)


def _counted(targets: Any, loss: LossLike) -> Any:
    """Return the targets with those that a loss leaves out as all losses leave them out."""
    if not isinstance(targets, Tensor) or targets.is_floating_point() or ignored_by(loss) == IGNORED:
        return targets
    return targets.masked_fill(targets == ignored_by(loss), IGNORED)


def _fits(outputs: Tensor, targets: Tensor, kind: str) -> bool:
    """Say whether the tensors have the usual shapes of their kind; targets may be probabilities of classes, too."""
    if kind == CLASSES:
        return not targets.is_floating_point() and outputs.dim() == targets.dim() + 1
    if kind == LABELS and not _are_labels(targets):
        return False
    return outputs.numel() == targets.numel()


def _are_labels(targets: Tensor) -> bool:
    return bool(((targets == 0) | (targets == 1)).all())


def _of_labelled(output: Any, labels: Tensor, model: nn.Module) -> Answers:
    """Read the output of a model that takes its labels, as Hugging Face's do."""

    def entry(name: str) -> Any:
        return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)

    logits, loss = entry("logits"), entry("loss")
    if not isinstance(logits, Tensor):
        return Answers(None, None, None, loss)
    if labels.is_floating_point():
        several = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"
        kind = LABELS if several else NUMBERS
        return Answers(logits, labels, kind if logits.numel() == labels.numel() else None, loss)
    if labels.dim() == 2 and logits.dim() == 3:  # a token each, scores of classes last
        language = any(word in type(model).__name__ for word in ("CausalLM", "LMHead"))
        if language:  # the answers belong to the tokens after them
            logits, labels = logits[:, :-1], labels[:, 1:]
        return Answers(logits.flatten(0, 1), labels.flatten(), CLASSES, loss, language)
    return Answers(logits, labels, CLASSES if logits.dim() == labels.dim() + 1 else None, loss)


def _kinds_by_shape(outputs: Tensor, targets: Tensor) -> list[str]:
    """Return what targets may be, the likeliest first."""
    whole = not targets.is_floating_point()
    if whole and outputs.dim() == targets.dim() + 1 and outputs.shape[1] > 1:
        return [CLASSES]
    if outputs.numel() != targets.numel():
        return []
    return [LABELS, NUMBERS] if whole else [NUMBERS, LABELS]


def _laid_out(outputs: Tensor, targets: Tensor, kind: str, name: str) -> tuple[Tensor, Tensor]:
    outputs, targets = outputs.detach(), targets.detach()
    if kind == CLASSES:
        outputs, targets = outputs.movedim(1, -1).flatten(0, -2), targets.flatten()
        outputs, targets = outputs[targets != IGNORED], targets[targets != IGNORED]
        strange = targets[(targets < 0) | (targets >= outputs.shape[1])]
        if strange.numel():
            raise BrainsurgeonError(
                f"{name}: a target is {int(strange[0])}, and the outputs have {outputs.shape[1]} classes. If such "
                f"targets are to be left out, give loss=nn.CrossEntropyLoss(ignore_index={int(strange[0])}); else "
                "mend them"
            )
        return outputs, targets
    if kind == LABELS and not _are_labels(targets):
        raise BrainsurgeonError(f"{name} with one output for each label needs targets of 0 and 1")
    targets = targets.reshape(outputs.shape)
    if outputs.dim() < 2:
        return outputs.reshape(-1, 1), targets.reshape(-1, 1)
    return tuple(t.movedim(1, -1).flatten(0, -2) for t in (outputs, targets))  # type: ignore[return-value]
