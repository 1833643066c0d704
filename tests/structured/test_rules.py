"""Which units each operation leaves, joins or ties down: small networks around it, and the groups that must come out.

Every group that is found was removed on trial, and the smaller network gave what the large one gives without it.
"""

from __future__ import annotations

import pytest
import structures as s
import torch
from around import Around, found, targets, wide
from torch import nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError

IMAGES = {
    "instance norm": (Around(wide(), lambda x, n: n(x), nn.Conv2d(8, 3, 1), n=nn.InstanceNorm2d(8, affine=True)), 8),
    "group norm": (Around(wide(), lambda x, n: n(x), nn.Conv2d(8, 3, 1), n=nn.GroupNorm(4, 8)), 4),
    "prelu": (Around(wide(), lambda x, p: p(x), nn.Conv2d(8, 3, 1), p=nn.PReLU(8)), 8),
    "gates of channels": (
        Around(
            wide(),
            lambda x, g: x * torch.sigmoid(g(x.mean((2, 3), keepdim=True))),
            nn.Conv2d(8, 3, 1),
            g=nn.Conv2d(8, 8, 1),
        ),
        8,
    ),
    "pixel shuffle": (Around(wide(), lambda x: F.pixel_shuffle(x, 2), nn.Conv2d(2, 3, 1)), 2),
    "padded": (Around(wide(), lambda x: F.pad(x, (1, 0, 0, 2)), nn.Conv2d(8, 3, 1)), 8),
    "padded by channels": (Around(wide(), lambda x: F.pad(x, (0, 0, 0, 0, 0, 2)), nn.Conv2d(10, 3, 1)), 8),
    "flattened": (Around(wide(), lambda x: F.max_pool2d(x, 4).flatten(1), nn.Linear(32, 3)), 8),
    "a grouped convolution": (Around(wide(), lambda x, g: g(x), nn.Conv2d(4, 3, 1), g=nn.Conv2d(8, 4, 1, groups=4)), 4),
    "upsampled": (Around(wide(), lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), nn.Conv2d(8, 3, 1)), 8),
    "made by a transposed convolution": (
        Around(nn.ConvTranspose2d(3, 8, 2, stride=2), lambda x: x.relu(), nn.Conv2d(8, 3, 1)),
        8,
    ),
    "one scale for all": (Around(wide(), lambda x, b: x * b.weight, nn.Conv2d(8, 3, 1), b=nn.PReLU(1)), 8),
    "normalised by the norm of positions": (
        Around(wide(), lambda x: x / torch.linalg.vector_norm(x, 2, (2, 3), keepdim=True), nn.Conv2d(8, 3, 1)),
        8,
    ),
    "the largest of each row": (Around(wide(), lambda x: x.topk(2, 3)[0], nn.Conv2d(8, 3, 1)), 8),
    "half gates half": (Around(wide(), lambda x: F.glu(x, 1), nn.Conv2d(4, 3, 1)), 4),
    "halves gated by hand": (
        Around(wide(), lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1].sigmoid(), nn.Conv2d(4, 3, 1)),
        4,
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_units_pass_through(name: str) -> None:
    model, units = IMAGES[name]
    inputs = s.images(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units) for group in prepared.groups] == [("first", units)]


TIED_DOWN = {
    "the largest channels": (Around(wide(), lambda x: x.topk(2, 1)[0], nn.Conv2d(2, 3, 1)), "as a whole"),
    "normalised channels": (
        Around(wide(), lambda x: x / x.norm(dim=1, keepdim=True), nn.Conv2d(8, 3, 1)),
        "as a whole",
    ),
    "the norm of all": (Around(wide(), lambda x: x / x.norm(), nn.Conv2d(8, 3, 1)), "as a whole"),
    "layer norm": (Around(wide(), lambda x: F.layer_norm(x, x.shape[1:]), nn.Conv2d(8, 3, 1)), "as a whole"),
    "softmax": (Around(wide(), lambda x: x.softmax(1), nn.Conv2d(8, 3, 1)), "as a whole"),
    "a sum over units": (Around(wide(), lambda x: x + x.mean(1, keepdim=True), nn.Conv2d(8, 3, 1)), "as a whole"),
    "a constant of its width": (
        Around(wide(), lambda x: x + torch.arange(8, dtype=x.dtype).view(8, 1, 1), nn.Conv2d(8, 3, 1)),
        "belong to no unit",
    ),
    "halves that change places": (
        Around(wide(), lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), nn.Conv2d(8, 3, 1)),
        "gives other outputs",
    ),
    "an unknown operation": (Around(wide(), lambda x: torch.cdist(x, x), nn.Conv2d(8, 3, 1)), "cannot be followed"),
    "read by a transposed convolution": (
        Around(wide(), lambda x: x, nn.ConvTranspose2d(8, 3, 2)),
        "no linear layer or convolution",
    ),
    "weights that are computed": (
        Around(wide(), lambda x, w: F.conv2d(x, w.weight.tanh()), nn.Conv2d(3, 3, 1), w=nn.Conv2d(8, 3, 1)),
        "weights that are computed",
    ),
}


@pytest.mark.parametrize("name", TIED_DOWN)
def test_units_that_cannot_go_are_named_with_the_reason(name: str) -> None:
    model, reason = TIED_DOWN[name]
    inputs = s.images(20)[0]
    with pytest.raises(BrainsurgeonError, match=rf"no unit to remove: .*first\.weight: .*{reason}"):
        found(model, targets(inputs, model.double()(inputs)))
