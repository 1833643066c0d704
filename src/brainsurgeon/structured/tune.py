"""A short fine-tune of a shrunk network, with the dense one as its teacher.

The steps match the outputs of the dense network, and its features in the units that stayed: a few hundred samples tell
more that way than by their labels. Batch normalisation keeps its statistics, because those of so few samples are poor,
and the rate is low: the fit has brought the weights near to where they should be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback
from brainsurgeon.network.distillation import Lesson, Teacher, watched
from brainsurgeon.network.footprint import probe
from brainsurgeon.network.loss import MATCH, LossLike
from brainsurgeon.network.match import bound_loss
from brainsurgeon.network.memory import check_device
from brainsurgeon.network.modes import own_mode
from brainsurgeon.network.names import unwrapped
from brainsurgeon.pruning.surgery import copied
from brainsurgeon.samples.batches import Batch, moved
from brainsurgeon.structured.remove import Cuts
from brainsurgeon.training.finetune import FinetuneResult, finetune
from brainsurgeon.training.settings import FinetuneSettings, settings_of

DEFAULT = FinetuneSettings(learning_rate=2e-5, batch_size=32, optimizer="adamw", statistics="kept")
LESSON = Lesson(share=1.0, features=1.0)


@own_mode(autocast=True)
def tune(
    small: nn.Module,
    dense: nn.Module,
    cuts: Cuts,
    data: Any,
    loss: LossLike = "cross_entropy",
    settings: FinetuneSettings | None = None,
    *,
    held_out: Any = None,
    augment: Callable[..., Batch] | None = None,
    device: str | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
    **options: Any,
) -> FinetuneResult:
    """Train a copy of a smaller network to give what the dense one gives; arguments as for `brainsurgeon.finetune`.

    The held-out samples, which choose the epoch, tell the same distance from the dense network.
    """
    settings = settings_of(settings, DEFAULT, options)
    place = check_device(device or next(small.parameters()).device)
    student, example = copied(small).to(place), probe(data)
    master = copied(unwrapped(dense)).to(place).eval().requires_grad_(False)
    if example is None:
        raise BrainsurgeonError("a teacher needs samples that can be read more than once: give tensors or a data set")
    kept = {name: units for (name, axis), units in cuts.kept.items() if axis == 0}
    names = watched(student)
    same = list(names) == list(watched(master))
    lesson = LESSON if same else replace(LESSON, features=0.0)  # attention that was replaced has other layers

    def taught(loss: LossLike) -> Teacher:
        bound = bound_loss(loss, data, lambda: master, place)
        return Teacher(master, bound, lesson, moved(example, place), _units(names, kept))

    teacher = taught(loss)
    if not teacher.can_teach:  # a loss that hides the outputs is not asked: any two models' can be compared
        teacher = taught(MATCH)
    with teacher.watching(student) as value:

        def distance(model: nn.Module, batch: Batch) -> Tensor:
            return value(batch, lambda: teacher.outputs(model, batch))

        return finetune(
            student,
            data,
            distance,
            settings,
            masks={},
            held_out=held_out,
            augment=augment,
            in_place=True,
            progress=progress,
            callback=callback,
        )


def _units(layers: Mapping[str, nn.Module], kept: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Return the units that layers have kept; None where that is not known, because a layer holds no tensors."""
    found: dict[str, Tensor | None] = {}
    for name, layer in layers.items():
        own = [f"{name}.weight", f"{name}.running_mean"]
        known = next((kept[one] for one in own if one in kept), None)
        if known is not None or not layer.state_dict():
            found[name] = known
    return found
