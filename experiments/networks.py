"""The paper's networks, prepared for an experiment."""

from pathlib import Path
from typing import Any

from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network, training_samples
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.one_shot import OneExamination, OneShot
from brainsurgeon.pruning.surgery import Surgery


def prepare(
    network: str, checkpoints: Path, root: Path | None = None, device: str = "cpu", **changes: Any
) -> tuple[Surgery, ImageData]:
    """Return a network on the table with the settings of the paper's tables, but for `changes`, and its data."""
    protocol = PROTOCOLS[network]
    data = load_images(protocol, root)
    model = load_network(protocol, [checkpoints]).to(device)
    settings = {"seed": 0, "progress": False, **protocol.settings, **changes}
    return Surgery(model, training_samples(protocol, data, settings["seed"]), **settings), data


def examined(surgery: Surgery) -> OneExamination:
    """Return what all one-shot methods of a surgery share: curvature and sample loss."""
    method = make_method("cbs", surgery.settings)
    assert isinstance(method, OneShot)
    return surgery.examined(method.examining, curvature=True)


def curvature_of(surgery: Surgery) -> QuadraticModel:
    """Return the quadratic model that a surgery's methods share."""
    found = examined(surgery).quadratic
    assert found is not None
    return found
