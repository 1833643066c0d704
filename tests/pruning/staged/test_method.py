"""Pruning in stages, from a model and data to a result: every kind of model, and every wrong setting refused."""

import copy
from typing import Any

import pytest
import torch
from cases import CASES, Case, every_case, every_device
from staging import run, trained
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from brainsurgeon import PruningResult, Surgery, prune
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import find_weights
from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.pruning import surgery as surgery_module
from brainsurgeon.pruning.staged import stage as stage_module
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.samples.held_out import TrainingSamples

SHORT = Stages(2, refits=1, trainings=0)


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


def stages(case: Case, **settings: Any) -> PruningResult:
    settings = {"sparsity": 0.7, "method": "staged", "schedule": SHORT, **settings}
    return prune(case.model(), case.data(), loss=case.loss, **settings)


def zeros(model: nn.Module, result: PruningResult) -> int:
    return sum(int((model.get_parameter(name)[mask] == 0).sum()) for name, mask in result.masks.items())


@every_device
@every_case
@pytest.mark.parametrize("curvature", ["auto", "fisher", "gram"])
def test_models_of_every_kind_are_pruned_to_the_exact_count(case: Case, curvature: str, device: str) -> None:
    result = stages(case, curvature=curvature, device=device)
    size = find_weights(case.model()).size
    assert zeros(result.model, result) == result.pruned == exact_count(0.7, size)
    parameters = dict(case.model().named_parameters())
    for name, parameter in result.model.named_parameters():
        assert parameter.dtype == parameters[name].dtype
        assert parameter.device == parameters[name].device
        assert bool(torch.isfinite(parameter).all())
        if name not in result.masks:
            assert torch.equal(parameter, parameters[name])
    assert result.settings["method"]["curvature"] == curvature
    assert result.loss_after < float("inf")


def test_a_copy_is_pruned_unless_in_place() -> None:
    case = CASES["linear"]
    model = case.model().train()
    before = copy.deepcopy(model.state_dict())
    result = prune(model, case.data(), 0.7, "staged", schedule=SHORT)
    assert result.model is not model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    own = prune(model, case.data(), 0.7, "staged", schedule=SHORT, in_place=True)
    assert own.model is model
    assert zeros(model, own) == own.pruned
    assert model.training
    assert all(p.requires_grad for p in [*model.parameters(), *result.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), result.model.parameters(), strict=True))


def test_a_model_that_fails_on_the_way_is_left_as_it_was() -> None:
    case = CASES["linear"]
    model = case.model()
    before = copy.deepcopy(model.state_dict())

    def stop(event: Any) -> None:
        if event.stage == "stages":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune(model, case.data(), 0.7, "staged", schedule=SHORT, in_place=True, callback=stop)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_record_says_how_it_came_about() -> None:
    result = stages(CASES["linear"], max_samples=20, max_seconds=60.0, max_gradients=300)
    settings = result.settings
    method = settings["method"]
    schedule = {"stages": 2, "kind": "exponential", "refits": 1, "trainings": 0}
    assert method["schedule"] == {"type": "Stages", **schedule}
    assert (method["max_gradients"], method["max_seconds"], method["max_samples"]) == (300, 60.0, 20)
    assert (settings["training_samples"], settings["held_out_samples"]) == (16, 4)
    assert settings["training_gradients"] == 0
    assert settings["sample_gradients"] == 7 * 16  # two slopes in three stages, a second curvature in one
    assert result.method == "staged"
    assert result.predicted_change is None
    assert {"gradients", "selection", "update", "loss"} <= result.seconds.keys()
    assert "staged" in result.summary()
    assert result.to_json()


def test_staged_is_in_stages_by_itself_and_a_number_gives_as_many_refits() -> None:
    case = CASES["regression"]
    counts = [
        [event.total for event in prune(case.model(), case.data(), 0.5, **given).trace if event.stage == "stages"]
        for given in ({"method": "staged", "loss": "mse"}, {"method": "mp", "schedule": 2, "loss": "mse"})
    ]
    assert counts == [[32] * 32, [4] * 4]  # trainings are for methods that move the kept weights


@pytest.mark.parametrize("method", ["mp", "wf", "mp+cbs-u", "rmp", "cbs", "relaxed+cbs-u"])
def test_any_method_may_go_in_stages(method: str) -> None:
    result = stages(CASES["linear"], method=method, schedule=Stages(2, refits=1), max_gradients=2000)
    assert result.pruned == zeros(result.model, result) == 51  # ⌈0.7 · 72⌉
    if method in {"mp", "rmp"}:  # without an update the weights that stay are the trained ones
        for name, mask in result.masks.items():
            kept, trained = result.model.get_parameter(name), CASES["linear"].model().get_parameter(name)
            assert torch.equal(kept[~mask], trained[~mask])


def test_a_loader_and_a_data_set_serve_as_well() -> None:
    case = CASES["linear"]
    dataset = TensorDataset(*case.data())
    for data in (dataset, DataLoader(dataset, 8), list(DataLoader(dataset, 8))):
        result = prune(case.model(), data, 0.7, "staged", schedule=SHORT)
        assert result.pruned == 51
        assert result.settings["held_out_samples"] == 8


def test_a_loss_that_reads_a_structured_output_goes_without_distillation() -> None:
    class Structured(nn.Linear):
        def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"logits": super().forward(x)}

    def loss(output: dict[str, Tensor], target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output["logits"], target)

    result = prune(Structured(6, 3), CASES["linear"].data(), 0.5, "staged", loss=loss, schedule=SHORT)
    assert result.pruned == 9


def test_some_layers_may_be_left_alone() -> None:
    result = stages(CASES["conv2d"], exclude="3", budget="uniform")
    assert result.masks.keys() == {"0.weight"}
    assert result.pruned == exact_count(0.7, 54)


def test_every_weight_may_go() -> None:
    """⌈0.99 · 18⌉ is 18: rows and layers that keep nothing are no trouble."""
    model = nn.Linear(6, 3)
    result = prune(model, CASES["linear"].data(), 0.99, "staged", schedule=SHORT)
    assert result.pruned == 18
    assert not result.model.weight.any()  # type: ignore[operator, union-attr]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"curvature": "hessian"}, 'curvature must be "auto", "fisher" or "gram", got .hessian.'),
    ({"curvature": ""}, 'curvature must be "auto", "fisher" or "gram", got '),
    ({"max_gradients": 0}, "max_gradients must be at least 1, got 0"),
    ({"max_gradients": -5}, "max_gradients must be at least 1, got -5"),
    ({"max_gradients": 6}, "max_gradients=6 is not one for each of the 7 examinations"),
    ({"max_seconds": 0}, "max_seconds must be positive"),
    ({"max_seconds": -1.0}, "max_seconds must be positive"),
    ({"max_seconds": float("nan")}, "max_seconds must be a number or None, got nan"),
    ({"max_samples": 0}, "max_samples must be at least 5"),
    ({"max_samples": -3}, "max_samples must be at least 5"),
    ({"sparsity": 1.5}, "sparsity must lie strictly between 0 and 1"),
    ({"budget": "layers"}, "budget must be"),
    ({"blocks": "row"}, "blocks must be"),
    ({"dtype": torch.int32}, "floating-point"),
]


@pytest.mark.parametrize(("settings", "message"), BAD, ids=lambda value: str(value)[:30])
def test_wrong_settings_are_refused_before_any_gradient_is_taken(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    monkeypatch.setattr("brainsurgeon.pruning.staged.stage.examine", lambda *args: taken.append(args))
    with pytest.raises(BrainsurgeonError, match=message):
        stages(CASES["linear"], **settings)
    assert not taken


def test_a_limit_of_time_that_is_no_number_is_refused_by_the_method_itself() -> None:
    with pytest.raises(BrainsurgeonError, match="max_seconds must be positive"):
        Staged(max_seconds=float("nan"))


def test_one_gradient_for_each_examination_is_enough() -> None:
    """Two slopes in three stages, and a second curvature in one."""
    assert stages(CASES["linear"], max_gradients=7).settings["sample_gradients"] == 7


@pytest.mark.parametrize(
    "setting",
    [{"curvature": "gram"}, {"max_gradients": 100}, {"max_seconds": 5.0}, {"max_samples": 100}],
    ids=str,
)
def test_settings_of_stages_are_refused_where_there_are_none(setting: dict[str, Any]) -> None:
    case = CASES["linear"]
    with pytest.raises(BrainsurgeonError, match=f"{next(iter(setting))} belongs to methods in stages: give a schedule"):
        prune(case.model(), case.data(), 0.5, "cbs", **setting)


def test_too_little_data_is_refused() -> None:
    x, y = CASES["linear"].data()
    with pytest.raises(BrainsurgeonError, match="too little data for a run in stages"):
        prune(CASES["linear"].model(), (x[:4], y[:4]), 0.5, "staged")


def test_stages_beat_one_shot_on_samples_that_neither_saw() -> None:
    """A trained network and real images: 600 of them for training, 1,000 others to judge on."""
    model, images = load_demo()
    x, y = images.train()
    train, test = (x[:600], y[:600]), (x[2000:3000], y[2000:3000])
    losses = {}
    for name, result in {
        "staged": prune(model, train, 0.9, "staged", schedule=Stages(3, refits=1)),
        "cbs": prune(model, train, 0.9, "cbs", num_gradients=200, loss_samples=400),
    }.items():
        assert result.pruned == exact_count(0.9, find_weights(model).size)
        with torch.no_grad():
            losses[name] = nn.functional.cross_entropy(result.model(test[0]), test[1]).item()
    assert losses["staged"] < losses["cbs"]


def test_a_surgery_and_a_run_in_stages_count_alike() -> None:
    case = CASES["conv2d"]
    surgery = Surgery(case.model(), case.data(), case.loss)
    assert surgery.prune(0.7, "mp").pruned == stages(case, method="mp").pruned


def test_what_is_held_out_is_never_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gradient is ever taken on the samples that steps are judged on."""
    case = CASES["linear"]
    held = {tuple(row) for row in TrainingSamples(case.data(), 0, torch.device("cpu")).held_out()[0][0].tolist()}
    seen: set[tuple[float, ...]] = set()
    original = stage_module.examine

    def watched(kind: str, loss: Any, weights: Any, batches: Any, *rest: Any) -> Any:
        seen.update(tuple(row) for batch in batches for row in batch[0].tolist())
        return original(kind, loss, weights, batches, *rest)

    monkeypatch.setattr(stage_module, "examine", watched)
    stages(case)
    assert len(held) == 8
    assert len(seen) == 32
    assert not held & seen


@pytest.mark.parametrize("most", [5, 50, 1000])
def test_no_more_samples_are_used_than_allowed(toy: Any, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surgery_module, "probe", lambda _: None)  # whose pass tells the memory of a sample, of any few
    model, (x, y) = toy
    seen: set[int] = set()

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        if not torch._C._functorch.is_batchedtensor(batch[2]):
            seen.update(batch[2].reshape(-1).tolist())
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    result = run((model, (x, y, torch.arange(300))), max_samples=most, loss=loss, method="wf-s+cbs-u")
    counts = result.settings["training_samples"], result.settings["held_out_samples"]
    assert counts == (min(most, 300) - min(most, 300) // 5, min(most, 300) // 5)
    assert len(seen) <= min(most, 300)


@pytest.mark.parametrize("name", ["linear", "batch_norm_dropout"])
def test_the_loss_that_is_told_is_that_of_the_model_on_what_was_held_out(name: str) -> None:
    case = CASES[name]
    result = run((case.model(), case.data()))
    held = TrainingSamples(case.data(), 0, torch.device("cpu")).held_out()[0]
    for model, told in ((case.model(), result.loss_before), (result.model, result.loss_after)):
        found = nn.functional.cross_entropy(model.eval()(held[0]), held[1])
        assert told == pytest.approx(found.item(), rel=1e-5)
