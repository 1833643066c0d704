"""What does not fit is refused, with changes that would."""

import ast

import pytest
import torch
from memory_cases import MODEL_BYTES, SAMPLE, large, total, weights

from brainsurgeon.network.memory import DoesNotFitError
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning import fitting
from brainsurgeon.pruning.fitting import check_memory
from brainsurgeon.pruning.memory import memory_needs
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.one_shot import OneShot

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_said_to_fit_is_the_most_that_does(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    free = total("cbs", num_gradients=40, dtype=dtype)
    monkeypatch.setattr(fitting, "available_bytes", lambda device: free)

    def check(rows: int) -> None:
        check_memory(make_method("cbs", {"num_gradients": rows, "dtype": dtype}), weights(), MODEL_BYTES, CPU)

    check(40)
    with pytest.raises(DoesNotFitError, match="What would fit: num_gradients=40 or fewer"):
        check(41)
    with pytest.raises(DoesNotFitError, match="num_gradients=40 or fewer"):
        check(5000)


def test_half_precision_is_a_remedy_only_where_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    method = make_method("cbs", {"num_gradients": 100})
    assert isinstance(method, OneShot)
    enough = total("cbs", num_gradients=100, dtype=torch.bfloat16)
    for free, named in ((enough, True), (enough - 1, False)):
        monkeypatch.setattr(fitting, "available_bytes", lambda device, free=free: free)
        with pytest.raises(DoesNotFitError) as refused:
            check_memory(method, weights(), MODEL_BYTES, CPU)
        assert ("dtype=bfloat16" in str(refused.value)) == named


@pytest.mark.parametrize("name", ["mp", "cbs", "staged", "layerwise", "gradual", "auto"])
def test_where_nothing_fits_nothing_is_advised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "available_bytes", lambda device: 1000)
    with pytest.raises(DoesNotFitError, match=r"and [\d.]+ \w+ are free on cpu\. Nothing that it can be told"):
        check_memory(make_method(name), weights(), MODEL_BYTES, CPU)
    monkeypatch.setattr(fitting, "available_bytes", lambda device: None)
    check_memory(make_method(name), weights(), MODEL_BYTES, CPU)


@pytest.mark.parametrize("name", ["mp", "cbs", "wf", "staged", "layerwise", "gradual", "auto"])
@pytest.mark.parametrize("share", [0.97, 0.6, 0.3])
def test_what_is_advised_is_accepted_when_it_is_followed(
    name: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, method, some = 4 * large().size, make_method(name), large()
    free = int(share * sum(memory_needs(method, some, model, SAMPLE).values()))
    monkeypatch.setattr(fitting, "available_bytes", lambda device: free)
    with pytest.raises(DoesNotFitError) as refused:
        check_memory(method, some, model, CPU, SAMPLE)
    _, found, advice = str(refused.value).partition("What would fit: ")
    for remedy in advice.split("; or ") if found else ():
        key, _, value = remedy.partition("=")
        followed, kept = method, some
        if key == "num_gradients":
            followed = make_method(method, {key: int(value.split()[0])})
        elif key == "dtype":
            followed = make_method(method, {key: torch.bfloat16})
        elif key == "max_samples":
            followed = make_method(method, {key: int(value)})
        elif key == "method":
            followed = make_method(value.strip('"'))
        else:
            assert key == "exclude"
            kept = PrunableWeights(tuple(la for la in some.layers if la.name not in ast.literal_eval(value)))
        check_memory(followed, kept, model, CPU, SAMPLE)
