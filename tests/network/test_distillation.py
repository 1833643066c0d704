"""The dense network as a teacher: distances against torch's own, nothing to learn at the dense weights."""

import copy
from collections.abc import Callable

import pytest
import torch
from networks import BY_NAME
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.network.distillation import Lesson, Teacher, held_out_distance, watched
from brainsurgeon.network.loss import BatchLoss, distance, output_loss, variance_of
from brainsurgeon.samples.views import Views

shapes = pytest.mark.parametrize(("shape", "axis"), [((5, 4), 1), ((5, 4, 3), 1), ((5, 3, 4), -1)])


def draw(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


@shapes
@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_distance_of_classes_is_the_divergence_at_a_temperature(
    shape: tuple[int, ...], axis: int, temperature: float
) -> None:
    """T² KL(dense ‖ found) along the axis of the classes, the mean over all else."""
    found, wanted = draw(*shape)
    scaled = [(logits / temperature).movedim(axis, -1).flatten(0, -2) for logits in (found, wanted)]
    expected = temperature**2 * F.kl_div(
        scaled[0].log_softmax(-1), scaled[1].log_softmax(-1), reduction="batchmean", log_target=True
    )
    assert float(distance(found, wanted, axis, temperature)) == pytest.approx(float(expected), rel=1e-5)


def test_the_distance_of_numbers_is_relative_to_their_variance() -> None:
    found, wanted = draw(6, 2)
    variance = variance_of(wanted)
    expected = (found - wanted).square().mean() / wanted.var(correction=0)
    assert torch.isclose(distance(found, wanted, None, variance=variance), expected)
    assert torch.isclose(distance(3 * found, 3 * wanted, None, variance=variance_of(3 * wanted)), expected)


def changed(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    return other


def value(teacher: Teacher, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    with teacher.watching(model) as lesson:
        return lesson(batch, lambda: teacher.outputs(model, batch))


@pytest.mark.parametrize("name", ["convolutional", "encoder", "residual"])
def test_features_have_no_distance_at_the_dense_weights_and_one_elsewhere(name: str) -> None:
    """Of normalisation layers, and of linear layers where there are none."""
    network = BY_NAME[name]
    dense, batch = network.model(), network.batches()[0]
    teacher = Teacher(dense, network.loss, Lesson(share=1.0, features=1.0), batch)
    assert float(value(teacher, copy.deepcopy(dense), batch)) == pytest.approx(0, abs=1e-6)
    other = changed(dense)
    only_outputs = Teacher(dense, network.loss, Lesson(share=1.0), batch)
    features = float(value(teacher, other, batch)) - float(value(only_outputs, other, batch))
    assert features == pytest.approx(feature_distance(dense, other, batch), rel=1e-4)
    assert not any(module._forward_hooks for model in (dense, other) for module in model.modules())


def feature_distance(dense: nn.Module, other: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    """The mean over the watched layers of ‖a − ā‖²/Var(ā), from passes of our own."""
    outputs: list[list[Tensor]] = []
    for model in (dense, other):
        into: list[Tensor] = []
        hooks = [
            m.register_forward_hook(lambda _, __, out, into=into: into.append(out)) for m in watched(model).values()
        ]
        model(batch[0])
        outputs.append(into)
        for hook in hooks:
            hook.remove()
    pairs = list(zip(*outputs, strict=True))
    return sum(float((a - b).square().mean() / b.var()) for b, a in pairs) / len(pairs)


def test_normalisation_layers_are_watched_and_linear_ones_where_there_are_none() -> None:
    assert [type(m) for m in watched(BY_NAME["convolutional"].model()).values()] == [nn.BatchNorm2d]
    assert {type(m) for m in watched(BY_NAME["residual"].model()).values()} == {nn.Linear}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_lesson_is_a_share_of_the_loss_and_of_the_distance(share: float) -> None:
    network = BY_NAME["residual"]
    dense, batch = network.model(), network.batches()[0]
    other = changed(dense)
    found = value(Teacher(dense, network.loss, Lesson(share, 2.0), batch), other, batch)
    loss = BatchLoss(other, network.loss)(batch)
    apart = distance(other(batch[0]), dense(batch[0]), 1, 2.0)
    assert torch.isclose(found, (1 - share) * loss + share * apart)


def own(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return model(batch[0]).square().mean()


@pytest.mark.parametrize("loss", [own, "model"])
def test_a_loss_that_does_not_show_the_outputs_cannot_be_taught_from(loss: str | Callable[..., Tensor]) -> None:
    network = BY_NAME["residual"]
    teacher = Teacher(network.model(), loss, Lesson(1.0, features=1.0), network.batches()[0])
    assert not teacher.can_teach
    assert teacher.lesson == Lesson()


@pytest.mark.parametrize("name", ["residual", "llama"])
def test_the_held_out_distance_is_the_mean_over_all_samples_and_leaves_modes_alone(name: str) -> None:
    network = BY_NAME[name]
    dense, batches = network.model(), network.batches()
    other = changed(dense)
    other.train()
    next(other.children()).eval()
    modes = [module.training for module in other.modules()]
    parts = output_loss(network.loss, dense, batches[0])
    assert parts is not None
    found = held_out_distance(other, dense, parts, batches)
    assert [module.training for module in other.modules()] == modes
    other.eval()
    data = network.data()
    with torch.no_grad():
        whole = distance(parts.outputs(other, data), parts.outputs(dense, data), parts.axis)
    assert found == pytest.approx(float(whole), rel=1e-4)
    assert held_out_distance(dense, dense, parts, batches) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_lesson_that_is_doubted_is_the_loss_alone_once_the_student_is_ahead(share: float) -> None:
    network = BY_NAME["sequential"]
    dense, batch = network.model(), network.batches()[0]
    teacher = Teacher(changed(dense), network.loss, Lesson(share, 2.0, 1.0, while_better=True), batch)
    plain = Teacher(dense, network.loss, Lesson(), batch)
    expected = value(plain, dense, batch)
    with teacher.watching(dense) as lesson:
        teacher.trust.restore(torch.tensor([0, 1, 1e-6, 1.0]), expected)  # the student is far ahead
        assert torch.isclose(lesson(batch, lambda: teacher.outputs(dense, batch)), expected)
        teacher.trust.restore(torch.tensor([0, 0, 1e-6, 1.0]), expected)  # and the dense network is not run
        teacher.dense = nn.Identity()
        assert torch.isclose(lesson(batch, lambda: teacher.outputs(dense, batch)), expected)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_lesson_is_what_it_says_while_the_dense_network_is_ahead(share: float) -> None:
    network = BY_NAME["sequential"]
    dense, batch = network.model(), network.batches()[0]
    student = changed(dense)
    always = value(Teacher(dense, network.loss, Lesson(share, 2.0, 1.0), batch), student, batch)
    teacher = Teacher(dense, network.loss, Lesson(share, 2.0, 1.0, while_better=True), batch)
    with teacher.watching(student) as lesson:
        teacher.trust.restore(torch.tensor([0, 1, 1e6, 1.0]), always)
        assert torch.isclose(lesson(batch, lambda: teacher.outputs(student, batch)), always)


def test_the_dense_network_answers_with_the_mean_over_the_views_and_features_of_the_first() -> None:
    network = BY_NAME["sequential"]
    dense, (batch, other) = network.model().eval(), network.batches()[:2]
    other = (other[0], batch[1])
    student = changed(dense).eval()
    one = value(Teacher(dense, network.loss, Lesson(0.0, 2.0, 3.0), batch), student, batch)  # loss and features
    teacher = Teacher(dense, network.loss, Lesson(0.25, 2.0, 3.0), batch)
    assert teacher.parts is not None
    wanted = (teacher.outputs(dense, batch) + teacher.outputs(dense, other)) / 2
    found = teacher.outputs(student, batch)
    loss = teacher.parts.loss(found, batch)
    expected = one - 0.25 * loss + 0.25 * teacher.parts.distance(found, wanted, 2.0)
    with teacher.watching(student) as lesson:
        views = Views(batch, (other,))
        assert torch.isclose(lesson(views, lambda: teacher.outputs(student, batch)), expected)


def test_views_of_the_same_size_are_answered_in_one_pass_and_others_apart() -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    passes: list[int] = []
    dense.register_forward_hook(lambda _, given, __: passes.append(len(given[0])))
    images, targets = torch.randn(5, 1, 8, 8), torch.arange(5) % 3
    other, smaller = torch.randn(5, 1, 8, 8), torch.randn(5, 1, 6, 6)
    student = changed(dense)
    for second, expected in ((other, [10]), (smaller, [5, 5])):
        teacher = Teacher(dense, "cross_entropy", Lesson(1.0, 2.0), (images, targets))
        wanted = (dense(images) + dense(second)) / 2
        with teacher.watching(student) as lesson:
            found = student(images)
            passes.clear()
            value = lesson(Views((images, targets), ((second, targets),)), lambda found=found: found)
            assert passes == expected
        assert teacher.parts is not None
        assert torch.isclose(value, teacher.parts.distance(found, wanted, 2.0), rtol=1e-3)
