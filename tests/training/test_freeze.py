"""Zeros stay exactly zero, whatever trains the others."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from cases import CASES, TABLE, Case, needs_gpu, seeded
from torch import Tensor, nn
from torch.optim import swa_utils

from brainsurgeon import BrainsurgeonError, freeze_zeros
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.network.zeros import count_zeros, set_zeros, zero_masks

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "maximize": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, maximize=True, weight_decay=0.1),
    "foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
    "fused adam": lambda p: torch.optim.Adam(p, 0.01, fused=True),
    "amsgrad": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, 1.0),
    "nadam": lambda p: torch.optim.NAdam(p, 0.01),
    "radam": lambda p: torch.optim.RAdam(p, 0.01),
    "rprop": lambda p: torch.optim.Rprop(p, 0.01),
    "asgd": lambda p: torch.optim.ASGD(p, 0.1),
}


def pruned_model(case: Case, share: float = 0.6) -> tuple[nn.Module, dict[str, Tensor]]:
    model = case.model()
    shapes = {layer.name: layer.shape for layer in find_weights(model).layers}
    masks = seeded(lambda: {name: torch.rand(shape) < share for name, shape in shapes.items()}, 7)
    set_zeros(model, masks)
    return model, masks


def step(model: nn.Module, case: Case, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    BatchLoss(model, case.loss)(case.data()).backward()
    optimizer.step()


def moved(model: nn.Module, before: dict[str, Tensor], masks: dict[str, Tensor]) -> bool:
    return any(bool((model.get_parameter(n)[~m] != before[n][~m]).any()) for n, m in masks.items() if bool((~m).any()))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_keeps_the_zeros_and_moves_the_rest(name: str) -> None:
    case = CASES["conv2d"]
    model, masks = pruned_model(case)
    before = copy.deepcopy(model.state_dict())
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    frozen = freeze_zeros(model, optimizer)
    for _ in range(5):
        step(model, case, optimizer)
        assert frozen.count() == sum(int(mask.sum()) for mask in masks.values())
    assert moved(model, before, masks)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_every_kind_of_module_keeps_its_zeros(case: Case) -> None:
    model, masks = pruned_model(case)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, weight_decay=0.1)
    frozen = freeze_zeros(model, optimizer, masks)
    for _ in range(3):
        step(model, case, optimizer)
    assert frozen.count() == sum(int(mask.sum()) for mask in masks.values())


def test_without_it_the_zeros_are_lost() -> None:
    """The other tests can fail."""
    case = CASES["linear"]
    model, masks = pruned_model(case)
    step(model, case, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(BrainsurgeonError, match=r"are no longer zero.*freeze_zeros"):
        count_zeros(model, masks)


def test_momentum_from_before_cannot_move_them() -> None:
    case = CASES["linear"]
    model = case.model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step(model, case, optimizer)
    masks = {"0.weight": torch.ones(8, 6, dtype=torch.bool)}
    frozen = freeze_zeros(model, optimizer, masks)
    step(model, case, optimizer)
    assert frozen.count() == 48


def test_gradients_on_them_are_cleared_so_that_clipping_does_not_see_them() -> None:
    case = CASES["linear"]
    model, masks = pruned_model(case)
    freeze_zeros(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(2):  # the second adds to the first
        BatchLoss(model, case.loss)(case.data()).backward()
    for name, mask in masks.items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        assert not gradient[mask].any()
        assert gradient[~mask].any()


def test_lbfgs_evaluates_inside_a_step_with_the_zeros_kept() -> None:
    case = CASES["regression"]
    model, _ = pruned_model(case)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    frozen = freeze_zeros(model, optimizer)

    def closure() -> Tensor:
        optimizer.zero_grad()
        frozen.count()
        loss = BatchLoss(model, case.loss)(case.data())
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > closure().item()
    assert frozen.count() > 0


def test_mixed_precision_with_a_scaler_and_a_skipped_step() -> None:
    case = CASES["linear"]
    model, _ = pruned_model(case)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    frozen = freeze_zeros(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    inputs, targets = case.data()
    for overflow in (False, True, False):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs).float(), targets)
        scaler.scale(loss * float("inf") if overflow else loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert frozen.count() > 0


def test_parameter_groups_and_several_optimizers() -> None:
    case = CASES["linear"]
    model, _ = pruned_model(case)
    assert isinstance(model, nn.Sequential)
    first = torch.optim.Adam([{"params": [model[0].weight]}, {"params": [model[0].bias], "lr": 0.1}], 0.01)
    second = torch.optim.SGD(model[2].parameters(), 0.1, momentum=0.9)
    frozen = freeze_zeros(model, [first, second])
    for optimizer in (first, second):
        step(model, case, optimizer)
    assert frozen.count() > 0


def test_saving_and_loading_in_the_midst_goes_on_bit_for_bit() -> None:
    case = CASES["linear"]
    straight, _ = pruned_model(case)
    resumed = copy.deepcopy(straight)
    optimizer = torch.optim.Adam(straight.parameters(), 0.01, weight_decay=0.1)
    freeze_zeros(straight, optimizer)
    for number in range(4):
        if number == 2:
            saved = copy.deepcopy((straight.state_dict(), optimizer.state_dict()))
        step(straight, case, optimizer)
    assert set(saved[0]) == set(resumed.state_dict())  # nothing was added to the model
    resumed.load_state_dict(saved[0])
    other = torch.optim.Adam(resumed.parameters(), 0.01, weight_decay=0.1)
    other.load_state_dict(saved[1])
    freeze_zeros(resumed, other)
    for _ in range(2):
        step(resumed, case, other)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])


def test_an_average_of_the_weights_keeps_the_zeros() -> None:
    case = CASES["linear"]
    model, masks = pruned_model(case)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    freeze_zeros(model, optimizer)
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    for _ in range(3):
        step(model, case, optimizer)
        average.update_parameters(model)
    assert count_zeros(average.module, masks) == sum(int(mask.sum()) for mask in masks.values())


def test_distributed_training_keeps_the_zeros() -> None:
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        case = CASES["linear"]
        model, masks = pruned_model(case)
        parallel = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(parallel.parameters(), 0.01, weight_decay=0.1)
        frozen = freeze_zeros(parallel.module, optimizer)
        for _ in range(3):
            step(parallel, case, optimizer)
        assert frozen.count() == sum(int(mask.sum()) for mask in masks.values())
        # The group must not be held by the model alone: its end would wait, under Python's lock, for its threads.
        del parallel
    finally:
        torch.distributed.destroy_process_group()


def test_removing_lets_go() -> None:
    case = CASES["linear"]
    model, masks = pruned_model(case)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with freeze_zeros(model, optimizer):
        step(model, case, optimizer)
        assert count_zeros(model, masks) > 0
    step(model, case, optimizer)
    with pytest.raises(BrainsurgeonError, match="no longer zero"):
        count_zeros(model, masks)


def test_a_kept_weight_that_happens_to_be_zero_is_free_where_masks_are_given() -> None:
    case = CASES["linear"]
    model, masks = pruned_model(case)
    parameter = model.get_parameter("2.weight")
    spot = tuple((~masks["2.weight"]).nonzero()[0])
    with torch.no_grad():
        parameter[spot] = 0
    assert zero_masks(model)["2.weight"][spot]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    freeze_zeros(model, optimizer, masks)
    step(model, case, optimizer)
    assert parameter[spot] != 0


def test_a_model_that_moves_to_another_type_keeps_its_zeros() -> None:
    model, masks = pruned_model(CASES["linear"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)
    frozen = freeze_zeros(model, optimizer)
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        model.to(dtype)
        optimizer.zero_grad()
        model(CASES["linear"].data()[0].to(dtype)).float().square().mean().backward()
        optimizer.step()
        assert frozen.count() == sum(int(mask.sum()) for mask in masks.values())


@pytest.mark.gpu
@needs_gpu
def test_a_model_that_moves_to_a_gpu_keeps_its_zeros() -> None:
    model, masks = pruned_model(CASES["linear"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)
    frozen = freeze_zeros(model, optimizer)
    for device in ("cpu", "cuda", "cpu"):
        model.to(device)
        optimizer.zero_grad()
        model(CASES["linear"].data()[0].to(device)).square().mean().backward()
        optimizer.step()
        assert frozen.count() == sum(int(mask.sum()) for mask in masks.values())


def test_what_a_step_makes_of_them_does_not_matter() -> None:
    """Not a number, infinite or negative zero: it becomes +0, bit for bit, and the kept weights keep every bit."""
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mask = torch.tensor([[True, True, True, False]])
    freeze_zeros(model, optimizer, {"weight": mask})
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[float("nan"), float("inf"), -0.0, -3.5]]))
    optimizer.step()
    assert model.weight.detach().view(torch.int32).tolist() == [[0, 0, 0, torch.tensor(-3.5).view(torch.int32).item()]]


def test_bad_calls_are_answered_in_words() -> None:
    model, masks = pruned_model(CASES["linear"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(BrainsurgeonError, match="no exact zeros"):
        freeze_zeros(CASES["linear"].model(), optimizer)
    with pytest.raises(BrainsurgeonError, match="no parameter of"):
        freeze_zeros(model, optimizer, {"other": masks["0.weight"]})
    with pytest.raises(BrainsurgeonError, match=r"boolean of shape \(8, 6\), got torch.float32"):
        freeze_zeros(model, optimizer, {"0.weight": masks["0.weight"].float()})
    with pytest.raises(BrainsurgeonError, match="trains no parameter"):
        freeze_zeros(model, torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1))
    with pytest.raises(BrainsurgeonError, match=r"expected a torch\.optim\.Optimizer"):
        freeze_zeros(model, [])
    with pytest.raises(BrainsurgeonError, match="there are no masks"):
        freeze_zeros(model, optimizer, {})
