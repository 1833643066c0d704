"""What is measured without being asked, by name and by functions, on batches of every form."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.evaluate import evaluate

GENERATOR = torch.Generator().manual_seed(0)
SCORES, CLASSES = torch.randn(90, 6, generator=GENERATOR), torch.randint(6, (90,), generator=GENERATOR)
LABELS = torch.randint(2, (90, 6), generator=GENERATOR).float()
SAME = nn.Identity()


def test_it_is_public() -> None:
    assert brainsurgeon.evaluate is evaluate


@pytest.mark.parametrize("loss", ["cross_entropy", F.cross_entropy, nn.CrossEntropyLoss(), "nll", nn.NLLLoss()])
def test_classes_report_their_accuracy(loss: Any) -> None:
    found = evaluate(SAME, (SCORES, CLASSES), loss=loss)
    assert found["accuracy"] == pytest.approx(100 * float((SCORES.argmax(1) == CLASSES).double().mean()))
    assert list(found) == ["accuracy", "loss"]


@pytest.mark.parametrize("shape", [(90,), (90, 1)])
def test_binary_runs_report_accuracy_and_f1(shape: tuple[int, ...]) -> None:
    found = evaluate(SAME, (SCORES[:, 0].reshape(shape), LABELS[:, 0].reshape(shape)), loss="bce_with_logits")
    right = (SCORES[:, 0] > 0) == (LABELS[:, 0] == 1)
    true = float(((SCORES[:, 0] > 0) & (LABELS[:, 0] == 1)).sum())
    assert found["accuracy"] == pytest.approx(100 * float(right.double().mean()))
    assert found["f1"] == pytest.approx(2 * true / float((SCORES[:, 0] > 0).sum() + LABELS[:, 0].sum()))
    assert found["loss"] == pytest.approx(float(F.binary_cross_entropy_with_logits(SCORES[:, 0], LABELS[:, 0])))
    assert list(found) == ["accuracy", "f1", "loss"]


def test_runs_of_several_labels_report_the_mean_over_labels_too() -> None:
    assert list(evaluate(SAME, (SCORES, LABELS), loss=nn.BCEWithLogitsLoss())) == ["accuracy", "f1", "macro-f1", "loss"]


@pytest.mark.parametrize("loss", ["mse", "l1", "huber", nn.SmoothL1Loss()])
def test_regressions_report_r2(loss: Any) -> None:
    found = evaluate(SAME, (SCORES, SCORES + 0.5), loss=loss)
    assert found["r2"] == pytest.approx(float(1 - (0.25 / SCORES.var(0, correction=0)).mean()), rel=1e-5)
    assert list(found) == ["r2", "loss"]


@pytest.mark.parametrize(
    ("data", "loss"),
    [
        ((SCORES, SCORES.softmax(1)), "cross_entropy"),
        ((SCORES, LABELS * 0.8 + 0.1), "bce_with_logits"),
        ([(SCORES, LABELS), (SCORES, LABELS * 0.8)], "bce_with_logits"),
        ((SCORES, torch.ones(90, 6)), "mse"),
        ((SCORES, CLASSES), lambda output, target: F.cross_entropy(output, target)),
        ({"x": SCORES}, lambda model, batch: model(batch["x"]).mean()),
    ],
    ids=["probabilities", "soft labels", "soft labels later", "constant targets", "own loss", "own batches"],
)
def test_what_the_loss_does_not_suggest_is_not_reported(data: Any, loss: Any) -> None:
    assert list(evaluate(SAME, data, loss=loss)) == ["loss"]


def test_names_are_taken_with_and_without_a_loss() -> None:
    data = (SCORES, CLASSES)
    assert list(evaluate(SAME, data, "top-5")) == ["top-5"]
    assert list(evaluate(SAME, data, ["macro-f1", "iou"], "cross_entropy")) == ["macro-f1", "iou", "loss"]
    assert evaluate(SAME, data, "accuracy") == evaluate(SAME, DataLoader(TensorDataset(*data), 7), "accuracy")
    assert list(evaluate(SAME, (SCORES[:, :1], CLASSES % 2), "f1")) == ["f1"]
    assert list(evaluate(SAME, (SCORES, LABELS), "f1")) == ["f1"]
    assert evaluate(SAME, (SCORES[:, 0], SCORES[:, 0] * 3), ["spearman"]) == {"spearman": pytest.approx(1.0)}
    assert list(evaluate(SAME, data, "accuracy", lambda model, batch: model(batch[0]).mean())) == ["accuracy", "loss"]


def test_a_picture_is_scored_pixel_by_pixel_without_those_that_are_ignored() -> None:
    maps = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    targets = maps.argmax(1)
    targets[0, 0, 0] = -100
    assert evaluate(SAME, (maps, targets), ["iou", "accuracy"]) == {"iou": 1.0, "accuracy": 100.0}
    targets[1] = (targets[1] + 1) % 3
    assert evaluate(SAME, (maps, targets), "accuracy") == {"accuracy": pytest.approx(100 * 74 / 99)}


class Tokens(nn.Module):
    """Logits that depend on the token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 5)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.table(input_ids)


class TableForCausalLM(Tokens):
    """The same as Hugging Face's models give it, labels and all."""

    def forward(self, input_ids: Tensor, labels: Tensor) -> Any:  # type: ignore[override]
        logits = self.table(input_ids)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(logits=logits, loss=loss)


def test_language_models_report_their_perplexity() -> None:
    tokens = torch.randint(5, (12, 7), generator=torch.Generator().manual_seed(1))
    plain, causal = Tokens(), TableForCausalLM()
    causal.load_state_dict(plain.state_dict())
    found = evaluate(plain, tokens, loss="next_token")
    assert list(found) == ["perplexity", "loss"]
    assert found["perplexity"] == pytest.approx(float(torch.tensor(found["loss"]).exp()), rel=1e-5)
    labels = tokens.clone()
    labels[:, 4:] = -100
    ignoring = evaluate(causal, {"input_ids": tokens, "labels": labels}, loss="model")
    logits = plain(tokens).detach()[:, :3].flatten(0, 1)
    assert ignoring["perplexity"] == pytest.approx(float(F.cross_entropy(logits, tokens[:, 1:4].flatten()).exp()))


def test_labels_of_a_model_of_its_own_are_classes_labels_or_numbers() -> None:
    class Head(nn.Module):
        def __init__(self, kind: str | None = None):
            super().__init__()
            self.config = SimpleNamespace(problem_type=kind)

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"logits": x, "loss": x.mean()}

    assert list(evaluate(Head(), {"x": SCORES, "labels": CLASSES}, loss="model")) == ["accuracy", "loss"]
    numbers = {"x": SCORES[:, :1], "labels": SCORES[:, 0]}
    assert evaluate(Head(), numbers, loss="model")["r2"] == 1.0
    several = evaluate(Head("multi_label_classification"), {"x": SCORES, "labels": LABELS}, loss="model")
    assert list(several) == ["accuracy", "f1", "macro-f1", "loss"]


def test_functions_score_the_model_or_its_outputs() -> None:
    data = [(SCORES[:50], CLASSES[:50]), (SCORES[50:], CLASSES[50:])]
    assert evaluate(SAME, None, lambda m: 3) == {"score": 3.0}
    assert evaluate(SAME, data, lambda outputs, targets: len(outputs) + len(targets)) == {"score": 180.0}
    found = evaluate(SAME, data, lambda o, t, scale=2: {"worst": scale * o.min()}, "cross_entropy")
    assert found == {"worst": pytest.approx(2 * float(SCORES.min())), "loss": pytest.approx(found["loss"])}


def test_the_model_is_in_evaluation_mode_and_gets_its_modes_back() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(6)).train()
    model[1].eval()
    once = evaluate(model, (SCORES, CLASSES), "accuracy")
    assert once == evaluate(model, (SCORES, CLASSES), "accuracy")
    assert [model.training, model[0].training, model[1].training] == [True, True, False]


@pytest.mark.parametrize(
    ("data", "score", "loss", "words"),
    [
        ((SCORES, CLASSES), None, None, "nothing to measure: give score="),
        ((SCORES, CLASSES), "acuracy", None, "unknown score 'acuracy'"),
        ((SCORES, CLASSES), [], None, "score must be a name, several, or a function"),
        ((SCORES, CLASSES), "r2", "cross_entropy", "r2 is of numbers, and here are targets that are classes"),
        ((SCORES, CLASSES), "r2", None, "r2 is of numbers, and here are targets that are classes"),
        ((SCORES, SCORES[:, :2]), "r2", None, "r2 is of numbers, and here are such shapes: outputs .64, 6., targets"),
        ((SCORES, SCORES), "accuracy", None, "needs targets of 0 and 1"),
        ((SCORES, torch.ones(90, 6)), "r2", "mse", "r2 is undefined on these samples"),
        ({"input": SCORES}, "accuracy", None, "which these batches do not give"),
        ({"input": SCORES}, lambda outputs, targets: 0.0, None, "needs batches .inputs, targets."),
        ((SCORES, CLASSES), lambda model: "good", None, "must return a number"),
        ([], "accuracy", None, "the data is empty"),
        ((SCORES, CLASSES), "accuracy", "crossentropy", "unknown loss 'crossentropy'"),
        ((SCORES, LABELS), None, nn.BCEWithLogitsLoss(reduction="none"), "must be one number"),
    ],
)
def test_what_cannot_be_measured_is_said(data: Any, score: Any, loss: Any, words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        evaluate(SAME, data, score, loss)


def test_what_fails_is_told_in_words() -> None:
    model, data = nn.Linear(6, 3), (torch.randn(8, 6), torch.randint(3, (8,)))
    with pytest.raises(BrainsurgeonError, match=r"float64.*convert the data"):
        evaluate(model, (data[0].double(), data[1]), "accuracy")
    for score in (lambda output, target: 1 / 0, lambda model: 1 / 0):
        with pytest.raises(BrainsurgeonError, match=r"failed \(ZeroDivisionError"):
            evaluate(model, data, score)


class Tagger(nn.Module):
    """Knows every tag but that of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Embedding(20, 5)
        with torch.no_grad():
            self.scores.weight.copy_(9 * F.one_hot(torch.arange(20) % 4 + 1, 5))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the tags, samples × tags × tokens."""
        return self.scores(tokens).transpose(1, 2)


@pytest.mark.parametrize("padding", [0, 255, -1])
def test_targets_that_the_loss_leaves_out_are_left_out_of_every_score(padding: int) -> None:
    tokens = torch.randint(1, 20, (50, 10), generator=torch.Generator().manual_seed(0))
    tags = tokens % 4 + 1
    tokens[:, 6:], tags[:, 6:] = 0, padding
    loss = nn.CrossEntropyLoss(ignore_index=padding)
    found = evaluate(Tagger(), (tokens, tags), ["accuracy", "macro-f1", "iou", "perplexity"], loss)
    assert found["accuracy"] == 100
    assert found["macro-f1"] == found["iou"] == 1
    assert found["perplexity"] == pytest.approx(float(loss(Tagger()(tokens), tags).detach().exp()))
    goal = brainsurgeon.Goal(drop=0.5, validation=(tokens, tags))
    result = brainsurgeon.prune(Tagger(), (tokens, tags), method="mp", loss=loss, goal=goal, progress=False)
    assert result.settings["goal"]["dense"] == 100


class Smooth(nn.CrossEntropyLoss):
    """A loss of the user's own that leaves targets out as the one it is made of does."""


def dice(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(outputs.softmax(1).amax(1) * (targets == outputs.argmax(1))).mean()


class Dice(nn.Module):
    """A loss of the user's own whose `ignore_index` is what it is given."""

    def __init__(self, ignore_index: Any = None):
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss."""
        return dice(outputs, targets)


@pytest.mark.parametrize(
    "loss",
    [Smooth(ignore_index=255), partial(F.cross_entropy, ignore_index=255), Dice(255)],
    ids=["own", "part", "dice"],
)
def test_any_loss_may_leave_targets_out(loss: Any) -> None:
    inputs, targets = torch.randn(40, 4), torch.arange(40) % 3
    model, kept = nn.Linear(4, 3), targets != 2
    wanted = evaluate(model, (inputs[kept], targets[kept]), "accuracy", "cross_entropy")["accuracy"]
    void = targets.masked_fill(~kept, 255)
    assert evaluate(model, (inputs, void), "accuracy", loss)["accuracy"] == pytest.approx(wanted)


@pytest.mark.parametrize("ignored", [None, [0, 1]])
def test_what_is_no_target_leaves_none_out(ignored: Any) -> None:
    inputs, targets = torch.randn(40, 4), torch.arange(40) % 3
    found = evaluate(nn.Linear(4, 3), (inputs, targets), "accuracy", Dice(ignored))
    assert 0 <= found["accuracy"] <= 100


@pytest.mark.parametrize("score", ["accuracy", "iou", "perplexity"])
def test_a_target_that_is_no_class_is_told_with_the_way_to_leave_it_out(score: str) -> None:
    with pytest.raises(BrainsurgeonError, match=r"a target is 255, and the outputs have 3 classes.*ignore_index=255"):
        evaluate(nn.Linear(4, 3), (torch.randn(5, 4), torch.tensor([0, 1, 255, 2, 0])), score)


def test_a_batch_whose_targets_are_all_left_out_has_no_part_in_the_loss() -> None:
    model, inputs, targets = nn.Linear(4, 3), torch.randn(6, 4), torch.tensor([0, 1, -100, -100, 2, 0])
    pairs = list(zip(inputs.split(2), targets.split(2), strict=True))
    found = evaluate(model, pairs, loss="cross_entropy")
    kept = targets != -100
    assert found["loss"] == pytest.approx(float(F.cross_entropy(model(inputs[kept]), targets[kept])))
    assert "loss" not in evaluate(model, pairs[1:2], loss="cross_entropy")
