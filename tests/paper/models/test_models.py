"""The networks have the paper's sizes, can be differentiated per sample, and are built reproducibly."""

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from brainsurgeon.paper.models import BUILDERS, build

INPUTS = {"mlpnet": (1, 28, 28), "mobilenet": (3, 64, 64), "mobilenet-0.75": (3, 64, 64)}


def matrices(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.ndim > 1)


@pytest.mark.parametrize(("name", "size"), [("mlpnet", 32_360), ("cifarnet", 116_704), ("mobilenet-0.75", 2_568_144)])
def test_the_number_of_weights_is_the_papers(name: str, size: int) -> None:
    assert matrices(build(name)) == size


@pytest.mark.parametrize("name", list(BUILDERS))
def test_every_network_maps_a_batch_to_logits(name: str) -> None:
    model = build(name).eval()
    with torch.no_grad():
        logits = model(torch.randn(2, *INPUTS.get(name, (3, 32, 32))))
    assert logits.shape == (2, 1000 if "mobilenet" in name else 10)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", ["mlpnet", "cifarnet", "resnet20", "mobilenet-0.75"])
def test_gradients_by_vmap_equal_those_of_one_sample_at_a_time(name: str) -> None:
    model = build(name).double().eval()  # in double, since ReLU6 turns rounding into jumps
    weights = {n: p.detach() for n, p in model.named_parameters()}
    shape = (2, *INPUTS.get(name, (3, 32, 32)))
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    targets = torch.tensor([1, 3])

    def loss(weights: dict[str, torch.Tensor], image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(functional_call(model, weights, (image[None],)), target[None])

    rows = vmap(grad(loss), (None, 0, 0))(weights, inputs, targets)
    alone = grad(loss)(weights, inputs[1], targets[1])
    for key in weights:
        torch.testing.assert_close(rows[key][1], alone[key])


@pytest.mark.parametrize("name", ["mlpnet", "cifarnet"])
def test_an_image_without_batch_dimension_is_accepted(name: str) -> None:
    image = torch.randn(INPUTS.get(name, (3, 32, 32)))
    model = build(name)
    torch.testing.assert_close(model(image), model(image[None])[0])


def test_building_is_reproducible_and_leaves_the_global_state_alone() -> None:
    before = torch.random.get_rng_state()
    first, second = build("mlpnet"), build("mlpnet")
    other = build("mlpnet", torch.Generator().manual_seed(1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.fc1.weight, second.fc1.weight)
    assert not torch.equal(first.fc1.weight, other.fc1.weight)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'lenet'.*mlpnet, cifarnet"):
        build("lenet")
