"""The one call: every method on every kind of module, exact, and nothing touched that should not be."""

import json
from pathlib import Path
from typing import Any

import pytest
import structures
import torch
from cases import CASES, Case, Tied, dict_loss, every_case, every_device
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import brainsurgeon
from brainsurgeon import METHOD_NAMES, Event, PruningResult, prune
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.engine.selection import Magnitude
from brainsurgeon.engine.update import Joint
from brainsurgeon.files.checkpoint import load_checkpoint
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.pruning.methods import LAYERWISE, make_method

QUICK: dict[str, Any] = {"num_gradients": 24, "damping": 1e-2, "progress": False}
FEW: dict[str, Any] = {"num_draws": 6, "seconds": 0.2}
LIMITS: dict[str, Any] = {
    "staged": {"schedule": 2, "max_gradients": 2000},
    "gradual": {"max_gradients": 400},
    "auto": {"max_gradients": 400},
}
TRAINING = {"auto", "gradual"}
MOVING = {"wf", "cbs", "cbs-published", "staged", "layerwise", "sparsegpt", *TRAINING}


def quick(method: str) -> dict[str, Any]:
    """Few gradients, draws and stages, for the methods that have any of these settings."""
    wanted = {**QUICK, **FEW, **LIMITS.get(method, {})}
    return {key: value for key, value in wanted.items() if key == "progress" or takes(method, key, value)}


def takes(method: str, key: str, value: Any) -> bool:
    try:
        make_method(method, {key: value})
    except brainsurgeon.BrainsurgeonError:
        return False
    return True


def run(case: Case, method: str = "cbs", sparsity: float = 0.6, **settings: Any) -> PruningResult:
    return prune(case.model(), case.data(), sparsity, method, case.loss, **{**quick(method), **settings})


def assert_exact(result: PruningResult, sparsity: float) -> None:
    """Exactly ⌈rN⌉ weights are gone, and each of them is exactly zero in the model."""
    size = sum(mask.numel() for mask in result.masks.values())
    assert result.size == size
    assert result.pruned == sum(int(mask.sum()) for mask in result.masks.values()) == exact_count(sparsity, size)
    for name, mask in result.masks.items():
        parameter = result.model.get_parameter(name)
        assert mask.shape == parameter.shape
        assert mask.dtype == torch.bool
        assert (parameter[mask] == 0).all()


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(model: nn.Module, state: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("method", METHOD_NAMES)
@every_case
def test_every_method_prunes_every_kind_of_module_exactly(case: Case, method: str) -> None:
    """Selections alone leave the kept weights as they were; nothing else changes but under methods that train it."""
    model, data = case.model(), case.data()
    before = state_of(model)
    if method in LAYERWISE and not linear_maps(model, case.prunable):
        with pytest.raises(brainsurgeon.BrainsurgeonError, match="needs linear layers or convolutions"):
            prune(model, data, 0.6, method, case.loss, **quick(method))
        return
    if method == "gradual" and case.loss is dict_loss:
        with pytest.raises(brainsurgeon.BrainsurgeonError, match="must see the model's outputs"):
            prune(model, data, 0.6, method, case.loss, **quick(method))
        return
    result = prune(model, data, 0.6, method, case.loss, **quick(method))
    assert_exact(result, 0.6)
    assert tuple(result.masks) == case.prunable
    assert same(model, before)
    for name, value in result.model.state_dict().items():
        if name in result.masks and "u" not in method.partition("+")[2] and method not in MOVING:
            assert torch.equal(value, before[name].masked_fill(result.masks[name], 0.0))
        elif name not in result.masks and method not in TRAINING and not (isinstance(model, Tied) and "out" in name):
            assert torch.equal(value, before[name])


@every_device
@every_case
def test_a_device_can_be_named_and_the_model_comes_back_to_its_own(case: Case, device: str) -> None:
    result = run(case, device=device)
    assert_exact(result, 0.6)
    assert {parameter.device.type for parameter in result.model.parameters()} == {"cpu"}


@pytest.mark.parametrize("sparsity", [0.01, 0.333, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("blocks", ["model", "layer", 7, "auto"])
def test_counts_are_exact_for_every_sparsity_and_block(sparsity: float, blocks: str | int) -> None:
    assert_exact(run(CASES["linear"], sparsity=sparsity, blocks=blocks), sparsity)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("settings", [{"gradient_batch": 4, "num_gradients": 8}, {"first_order": True}], ids=str)
def test_counts_are_exact_for_every_storage_and_row(dtype: torch.dtype, settings: dict[str, Any]) -> None:
    assert_exact(run(CASES["conv2d"], dtype=dtype, **settings), 0.6)


def test_weights_that_are_all_alike_are_pruned_exactly() -> None:
    model = nn.Linear(6, 3)
    nn.init.constant_(model.weight, 0.25)
    for method in METHOD_NAMES:
        assert_exact(prune(model, CASES["linear"].data(), 0.47, method, **quick(method)), 0.47)


def test_in_place_changes_the_model_itself() -> None:
    model = CASES["linear"].model()
    result = prune(model, CASES["linear"].data(), 0.5, "mp", in_place=True, **QUICK)
    assert result.model is model
    assert_exact(result, 0.5)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_left_alone_and_gradients_are_taken_in_eval_mode(training: bool) -> None:
    """Dropout and batch statistics change nothing, and running statistics do not move."""
    case = CASES["batch_norm_dropout"]
    model = case.model().train(training)
    before = state_of(model)
    result = prune(model, case.data(), 0.5, "cbs", **quick("cbs"))
    other = prune(case.model().eval(), case.data(), 0.5, "cbs", **quick("cbs"))
    assert model.training == result.model.training == training
    assert same(model, before)
    assert torch.equal(result.model[0].weight, other.model[0].weight)  # type: ignore[index]
    assert result.loss_before == other.loss_before


def test_mixed_modes_of_submodules_are_kept() -> None:
    model = CASES["batch_norm_dropout"].model().train()
    model[1].eval()  # type: ignore[index]
    result = prune(model, CASES["batch_norm_dropout"].data(), 0.5, "wf", **QUICK)
    assert [part.training for part in result.model.children()] == [True, False, True, True, True, True]


def test_frozen_parameters_are_untouched_and_stay_frozen() -> None:
    model = CASES["linear"].model()
    model[0].requires_grad_(False)  # type: ignore[index]
    frozen = model[0].weight.clone()  # type: ignore[index]
    result = prune(model, CASES["linear"].data(), 0.5, "cbs", **quick("cbs"))
    assert list(result.masks) == ["2.weight"]
    assert torch.equal(result.model[0].weight, frozen)  # type: ignore[index]
    assert [p.requires_grad for p in result.model.parameters()] == [False, False, True, True]


def test_tied_weights_are_counted_once_and_stay_tied() -> None:
    result = run(CASES["tied"])
    assert result.size == 7 * 4 + 4 * 4
    assert result.model.get_parameter("out.weight") is result.model.get_parameter("embedding.weight")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"include": "0"}, ["0.weight"]),
        ({"include": "?.weight", "exclude": "2.*"}, ["0.weight"]),
        ({"exclude": nn.Conv2d}, ["3.weight"]),
        ({"include": ["3.weight", "3.bias"]}, ["3.weight", "3.bias"]),
    ],
    ids=str,
)
def test_layers_can_be_chosen(rule: dict[str, Any], expected: list[str]) -> None:
    case = CASES["linear"] if "2.*" in rule.values() else CASES["conv2d"]
    result = run(case, **rule)
    assert list(result.masks) == expected
    assert_exact(result, 0.6)


@pytest.mark.parametrize("method", ["mp", "rmp", "wf", "cbs", "algorithm1"])
def test_budgets_bind_every_method(method: str) -> None:
    """Global, uniform, and by pattern: each layer to its share, the total exact."""
    uniform = run(CASES["linear"], method, budget="uniform")
    assert all(abs(layer.pruned - 0.6 * layer.size) <= 1 for layer in uniform.layers)
    assert_exact(uniform, 0.6)
    fixed = run(CASES["linear"], method, budget={"2.*": 0.25})
    assert fixed.layers[1].pruned == 6
    assert_exact(fixed, 0.6)
    assert_exact(run(CASES["linear"], method, budget="global"), 0.6)


@pytest.mark.parametrize("method", ["rmp", "cbs", "algorithm1+cbs-u"])
def test_the_same_seed_gives_the_same_weights_and_the_global_generators_are_left_alone(method: str) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = run(CASES["conv2d"], method, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second = run(CASES["conv2d"], method, seed=3)
    assert same(first.model, second.model.state_dict())
    assert first.loss_after == second.loss_after


def test_another_seed_gives_other_draws() -> None:
    masks = [run(CASES["conv2d"], "rmp", seed=seed, num_draws=2).masks["0.weight"] for seed in range(4)]
    assert any(not torch.equal(mask, masks[0]) for mask in masks[1:])


def test_the_result_tells_what_was_done() -> None:
    result = run(CASES["linear"], "cbs", seed=5)
    assert (result.method, result.sparsity, result.size) == ("cbs", 0.6, 72)
    assert [(layer.name, layer.shape) for layer in result.layers] == [
        ("0.weight", (8, 6)),
        ("2.weight", (3, 8)),
    ]
    assert result.predicted_change is not None
    assert result.predicted_change > 0
    assert result.loss_before > 0
    assert result.loss_after > 0
    assert {"gradients", "selection", "update"} <= {key.split("/")[0] for key in result.seconds}
    assert result.settings["seed"] == 5
    assert result.settings["method"]["num_gradients"] == QUICK["num_gradients"]
    assert result.settings["method"]["name"] == "cbs"
    assert set(result.settings) == {"method", "include", "exclude", "budget", "seed", "device", "loss"}
    assert {event.stage for event in result.trace} <= {"search", "scale"}
    assert "scale" in {event.stage for event in result.trace}
    assert "cbs: 44 of 72 weights pruned" in result.summary()


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_the_record_of_every_method_is_json(method: str) -> None:
    record = json.loads(run(CASES["linear"], method).to_json())
    assert record["method"] == method
    assert record["pruned"] == 44


@pytest.mark.parametrize("name", ["linear", "tied", "bfloat16"])
def test_a_saved_result_can_be_read_again(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    result = run(case)
    folder = result.save(tmp_path / "run")
    again = load_checkpoint(case.model(), folder / "model.safetensors")
    assert same(again, result.model.state_dict())
    with pytest.raises(FileExistsError):
        result.save(folder)


def test_the_callback_hears_of_every_stage_in_order() -> None:
    events: list[Event] = []
    run(CASES["linear"], "cbs", callback=events.append)
    stages = [event.stage for event in events]
    assert {"gradients", "draws", "search", "scale"} <= set(stages)
    assert stages[0] == "gradients"
    assert stages[-1] == "scale"
    assert [event.done for event in events if event.stage == "gradients"][-1] == QUICK["num_gradients"]


def test_progress_can_be_shown_and_standard_output_stays_clean(capsys: pytest.CaptureFixture[str]) -> None:
    run(CASES["linear"], "cbs", progress=True)
    run(CASES["linear"], "cbs", progress=None)
    assert capsys.readouterr().out == ""


def test_what_the_user_should_know_is_noted_once() -> None:
    notes = run(CASES["branching"], "wf", num_gradients=100).notes
    assert [("one by one" in note, "40 gradients" in note) for note in notes] == [
        (True, False),
        (False, True),
    ]


def test_a_pair_of_objects_prunes_like_the_name_it_stands_for() -> None:
    case = CASES["linear"]
    pair = prune(case.model(), case.data(), 0.5, (Magnitude(), Joint()), update_scale=1.0, **QUICK)
    named = prune(case.model(), case.data(), 0.5, "mp+cbs-u", update_scale=1.0, **QUICK)
    assert same(pair.model, named.model.state_dict())


@pytest.mark.parametrize("kind", ["loader", "list", "generator", "data set"])
def test_data_comes_in_any_form(kind: str) -> None:
    inputs, labels = CASES["linear"].data()
    source = {
        "loader": lambda: DataLoader(TensorDataset(inputs, labels), 7),
        "list": lambda: [(inputs[:9], labels[:9]), (inputs[9:], labels[9:])],
        "generator": lambda: ((inputs[k : k + 8], labels[k : k + 8]) for k in range(0, 40, 8)),
        "data set": lambda: TensorDataset(inputs, labels),
    }[kind]()
    assert_exact(prune(CASES["linear"].model(), source, 0.6, "cbs", **quick("cbs")), 0.6)


@pytest.mark.parametrize("method", ["mp", "cbs", "layerwise", "gradual", "staged", "auto"])
def test_a_budget_for_every_layer_is_met_by_every_method(method: str) -> None:
    """One layer stays whole, one goes as a whole; the total is what comes out."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(60, 6, generator=generator), torch.randint(3, (60,), generator=generator)
    result = prune(network, data, None, method, budget={"0": 0.0, "2": 0.5, "*": 1.0}, **quick(method))
    assert [layer.pruned for layer in result.layers] == [0, 32, 24]
    assert result.sparsity == 56 / 136
    assert "the budget comes to 56 of 136 weights (0.4118)" in result.notes


@pytest.mark.parametrize(
    ("method", "loss"),
    [*((method, "cross_entropy") for method in ("wanda", "layerwise", "staged", "auto")), ("layerwise", "match")],
)
def test_padded_texts_go_through_pytorchs_own_transformer(method: str, loss: str) -> None:
    """In evaluation mode it would take a fused path of nested tensors, which no hook and no gradient can follow."""
    tokens, labels = structures.texts()
    data = tokens if loss == "match" else (tokens, labels)
    result = prune(structures.seeded(structures.Padded).float(), data, 0.5, method, loss, **quick(method))
    assert_exact(result, 0.5)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("method", ["layerwise", "gradual", "cbs"])
def test_the_callers_autocast_changes_nothing(method: str) -> None:
    plain = run(CASES["linear"], method)
    with torch.autocast("cpu", torch.bfloat16):
        other = run(CASES["linear"], method)
    assert same(other.model, plain.model.state_dict())
    assert other.loss_after == plain.loss_after
