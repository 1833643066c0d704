"""Images with their channels last where that is faster, and only where the model allows it."""

import pytest
import torch
from cases import needs_gpu, seeded
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.network.layout import choose_layout, in_fast_layout
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.sample_loss import SampleLoss
from brainsurgeon.network.weights import find_weights


class Viewing(nn.Module):
    """A network that asks for its images' order in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.conv(x)
        return self.linear(hidden.view(hidden.shape[0], -1))


def convolutional() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)), 0).eval()


def images(count: int = 40) -> tuple[Tensor, Tensor]:
    return seeded(lambda: torch.randn(count, 3, 8, 8), 1), torch.arange(count) % 5


def is_last(batch: tuple[Tensor, Tensor]) -> bool:
    return batch[0].is_contiguous(memory_format=torch.channels_last) and not batch[0].is_contiguous()


def test_images_get_their_channels_last_and_keep_their_values() -> None:
    x, y = images()
    laid = choose_layout(BatchLoss(convolutional(), "cross_entropy"), (x, y))((x, y))
    assert is_last(laid)
    assert torch.equal(laid[0], x)
    assert laid[1] is y


@pytest.mark.parametrize("shape", [(6,), (7, 6), (1, 8, 8)], ids=["vectors", "sequences", "grey images"])
def test_what_has_no_channels_stays_as_it_is(shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(5))
    batch = (torch.randn(4, *shape), torch.arange(4))
    model(batch[0])
    assert choose_layout(BatchLoss(model, "cross_entropy"), batch)(batch) is batch


class Grouping(nn.Module):
    """Views samples and channels together, which a single sample with its channels last allows; or only in training."""

    def __init__(self, always: bool):
        super().__init__()
        self.always, self.conv, self.linear = always, nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.conv(x)
        if self.always or self.training:
            hidden = hidden.view(2 * len(x), -1, 6, 6).tanh().reshape(hidden.shape)
        return self.linear(hidden.flatten(1))


@pytest.mark.parametrize(
    ("always", "trains", "last"), [(True, False, False), (False, False, True), (False, True, False)]
)
def test_a_model_that_views_samples_together_gets_them_as_they_are(always: bool, trains: bool, last: bool) -> None:
    batch, model = images(), seeded(lambda: Grouping(always), 0).eval()
    laid = choose_layout(BatchLoss(model, "cross_entropy"), batch, trains)(batch)
    assert is_last(laid) is last
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    result = brainsurgeon.prune(model, batch, 0.5, "gradual", max_gradients=640, progress=False)
    assert result.pruned == result.size // 2


def test_a_model_that_views_its_images_gets_them_as_they_are() -> None:
    batch = images()
    model = seeded(Viewing, 0).eval()
    with pytest.raises(RuntimeError, match="view"):
        model(batch[0].contiguous(memory_format=torch.channels_last))
    assert choose_layout(BatchLoss(model, "cross_entropy"), batch)(batch) is batch


def test_the_sample_loss_and_its_gradient_are_the_same() -> None:
    model, (x, y) = convolutional().double(), images()
    x = x.double()
    weights = find_weights(model)
    values = weights.flatten(model)
    sample = SampleLoss(BatchLoss(model, "cross_entropy"), weights, values, [(x, y)])
    assert all(map(is_last, sample._batches))
    loss = nn.functional.cross_entropy(model(x), y)
    slopes = torch.autograd.grad(loss, [model.get_parameter(name) for name in weights.names])
    assert sample.at(values).loss() == pytest.approx(loss.item(), rel=1e-9)
    assert torch.allclose(sample.gradient(values, range(sample.num_batches)), torch.cat([s.flatten() for s in slopes]))


def test_a_cpu_leaves_a_model_as_it_is() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    assert in_fast_layout(model, lambda m: m(torch.zeros(1, 3, 8, 8))) is model


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("model", "turned"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)), True),
        (nn.Sequential(nn.Conv2d(3, 3, 3, groups=3)), False),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), False),
        (Viewing(), False),
    ],
)
def test_a_gpu_turns_what_can_be_turned_and_keeps_the_outputs(model: nn.Module, turned: bool) -> None:
    model = model.cuda()
    batch = torch.randn(2, 3, 8, 8, device="cuda")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = in_fast_layout(model, lambda m: m(batch))
    assert (found is not model) == turned
    if turned:
        weight = found.get_parameter("0.weight")
        assert weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(found(batch), model(batch), atol=1e-2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.is_contiguous() for p in model.parameters())
