"""A small network of one's own, for the tests of the command."""

import torch
from torch import nn


def build(hidden: int = 24, pause: float = 0.0) -> dict:
    """Two layers, trained for a moment on separable points."""
    inputs = torch.randn(600, 12)
    targets = (inputs[:, :3].sum(1) > 0).long() + (inputs[:, 3] > 1).long()
    model = nn.Sequential(nn.Linear(12, hidden), nn.ReLU(), nn.Linear(hidden, 3))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[:400]), targets[:400]).backward()
        optimizer.step()
    return {"model": model, "data": (inputs[:400], targets[:400]), "test": (inputs[400:], targets[400:])}
