"""Outputs and targets come out as the metrics take them, whatever the loss, the labels and the layout."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small import network, samples
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.answers import IGNORED, Answers, answer, has_targets
from brainsurgeon.network.metrics import CLASSES, LABELS, NUMBERS


@pytest.mark.parametrize(
    ("loss", "targets", "kind"),
    [
        ("cross_entropy", torch.tensor([0, 1, 2, 0]), CLASSES),
        (nn.CrossEntropyLoss(), torch.tensor([0, 1, 2, 0]), CLASSES),
        (nn.CrossEntropyLoss(), torch.full((4, 3), 1 / 3), None),  # probabilities are no classes
        ("bce_with_logits", torch.eye(4, 3), LABELS),
        ("bce_with_logits", torch.full((4, 3), 0.5), None),
        (F.mse_loss, torch.ones(4, 3), NUMBERS),
        (lambda output, target: (output - target).square().mean(), torch.ones(4, 3), None),
    ],
)
def test_the_kind_of_targets_follows_from_loss_and_shape(loss: Any, targets: Tensor, kind: str | None) -> None:
    model, inputs = network(), samples(4)[0]
    found = answer(model, loss, (inputs, targets))
    assert found.kind == kind
    torch.testing.assert_close(found.outputs, model(inputs))
    function = {"cross_entropy": F.cross_entropy, "bce_with_logits": F.binary_cross_entropy_with_logits}
    torch.testing.assert_close(found.loss, function.get(loss, loss)(model(inputs), targets))


def test_answers_of_a_language_model_belong_to_the_tokens_after_them() -> None:
    model, tokens = nn.Embedding(5, 5), torch.tensor([[0, 3, 2], [4, 4, 1]])
    found = answer(model, "next_token", tokens)
    assert found.language
    assert found.targets.tolist() == [3, 2, 4, 1]
    torch.testing.assert_close(found.outputs, model(torch.tensor([0, 3, 4, 4])))
    torch.testing.assert_close(found.loss, F.cross_entropy(found.outputs, found.targets))


class Labelled(nn.Module):
    """Takes its labels, and gives the logits of its tokens."""

    def __init__(self, problem_type: str | None = None):
        super().__init__()
        self.table, self.config = nn.Embedding(5, 5), SimpleNamespace(problem_type=problem_type)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"logits": self.table(input_ids), "loss": labels.sum() * 1.0}


class LabelledForCausalLM(Labelled):
    """Its labels are its own tokens."""


def test_labels_of_a_model_are_shifted_for_language_models_alone() -> None:
    tokens = torch.tensor([[0, 3, 2], [4, 4, 1]])
    batch = {"input_ids": tokens, "labels": tokens}
    plain, causal = answer(Labelled(), None, batch), answer(LabelledForCausalLM(), "model", batch)
    assert plain.targets.tolist() == tokens.flatten().tolist()
    assert causal.targets.tolist() == [3, 2, 4, 1]
    assert (plain.language, causal.language) == (False, True)
    assert [len(plain.outputs), len(causal.outputs)] == [6, 4]
    assert float(causal.loss) == 14.0
    numbers = {"input_ids": tokens[:, 0], "labels": torch.zeros(2, 5)}
    assert answer(Labelled(), None, numbers).kind == NUMBERS
    assert answer(Labelled("multi_label_classification"), None, numbers).kind == LABELS


def test_a_picture_is_laid_out_by_pixels_without_those_that_are_ignored() -> None:
    outputs, targets = torch.arange(24.0).reshape(1, 3, 2, 4), torch.zeros(1, 2, 4, dtype=torch.long)
    targets[0, 0, 1] = -100
    found, wanted = Answers(outputs, targets, CLASSES, None).arranged((CLASSES,), "accuracy")
    assert found.shape == (7, 3)
    assert found[1].tolist() == [2.0, 10.0, 18.0]  # the pixel after the one left out
    assert len(wanted) == 7


@pytest.mark.parametrize(
    ("outputs", "targets", "kinds", "shape"),
    [
        (torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), (CLASSES,), (4, 3)),
        (torch.zeros(4), torch.tensor([0, 1, 1, 0]), (LABELS,), (4, 1)),
        (torch.zeros(4, 3), torch.eye(4, 3), (LABELS,), (4, 3)),
        (torch.zeros(4, 1), torch.tensor([0.5, 2.0, 1.0, 3.0]), (NUMBERS, CLASSES), (4, 1)),
        (torch.zeros(2, 3, 5), torch.ones(2, 3, 5), (NUMBERS,), (10, 3)),
    ],
)
def test_without_a_loss_the_shapes_say_what_targets_are(
    outputs: Tensor, targets: Tensor, kinds: tuple[str, ...], shape: tuple[int, int]
) -> None:
    found, wanted = Answers(outputs, targets, None, None).arranged(kinds, "it")
    assert found.shape == shape
    assert torch.equal(wanted.double().sum(), targets.double().sum())
    assert wanted.shape == (shape if kinds != (CLASSES,) else shape[:1])
    with pytest.raises(BrainsurgeonError, match="it is of"):
        Answers(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), None, None).arranged((LABELS, NUMBERS), "it")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (Answers(None, None, None, None), "one tensor of outputs and one of targets"),
        (Answers(torch.ones(4, 3), torch.ones(4, 3), NUMBERS, None), "f1 is of classes or labels, and here are"),
        (Answers(torch.ones(4, 3), torch.ones(4, 2), None, None), r"such shapes: outputs \(4, 3\)"),
        (Answers(torch.ones(4, 3), torch.full((4, 3), 2), None, None), "needs targets of 0 and 1"),
    ],
)
def test_what_a_metric_cannot_be_taken_of_is_refused(answers: Answers, words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        answers.arranged((CLASSES, LABELS), "f1")


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (torch.tensor([[IGNORED, 3], [IGNORED, IGNORED]]), True),
        (torch.full((2, 3), IGNORED), False),
        (torch.full((2, 3), float(IGNORED)), True),
        (torch.zeros(0, dtype=torch.long), True),
    ],
)
def test_targets_that_are_all_left_out_are_none(targets: Tensor, expected: bool) -> None:
    inputs = torch.zeros(2, 3)
    assert has_targets((inputs, targets)) == has_targets({"x": inputs, "labels": targets}) == expected
    assert has_targets(inputs)
