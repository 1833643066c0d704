"""A protocol that takes a moment."""

from dataclasses import replace

import pytest
from reproducing import METHODS

from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.paper.reproduce import cells
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, Protocol


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """MLPNet's protocol, on the network and the digits in the package, with few gradients."""
    model, data = load_demo()
    monkeypatch.setattr(cells, "load_network", lambda protocol, folders: model)
    monkeypatch.setattr(cells, "load_images", lambda protocol, root: data)
    settings = {"num_gradients": 40, "blocks": "layer", "damping": 1e-3, "loss_samples": 64}
    return replace(PROTOCOLS["mlpnet"], settings=settings, methods=METHODS)
