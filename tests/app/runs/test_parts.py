"""The parts of a run on disk: one file each, whole or not at all, and a killed run goes on from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from killing import SETTINGS, execute_until, outcome

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunFolder, execute
from brainsurgeon.app.runs import store as store_module
from brainsurgeon.app.runs.store import FileStore
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files import writing
from brainsurgeon.pruning.gradual import loop as loop_module
from brainsurgeon.pruning.gradual import run as run_module

BASE = {key: SETTINGS[key] for key in ("target", "seed", "threads")}
LAYERWISE = {**BASE, "method": ["layerwise", "wanda"], "sparsity": 0.7}
GRADUAL = {**BASE, "method": "gradual", "sparsity": 0.7, "max_gradients": 400, "learning_rate": 0.01}
CPU = torch.device("cpu")


def tensors() -> dict[str, torch.Tensor]:
    return {"weight/a": torch.rand(3, 2).T, "pruned/a": torch.tensor([True, False]), "error/a": torch.tensor(0.5)}


def test_a_part_is_what_was_stored_of_it(tmp_path: Path) -> None:
    """Beside the state file of the cell, whose name may hold points; the last one stored counts."""
    store, kept = FileStore(tmp_path / "steps" / "wanda@0.7.safetensors", CPU), tensors()
    assert store.load_part(0) is None
    store.save_part(0, {})
    store.save_part(3, {"weight/a": torch.zeros(1)})
    store.save_part(3, kept)
    again = FileStore(tmp_path / "steps" / "wanda@0.7.safetensors", CPU)
    assert again.load() is None
    assert again.load_part(0) == {}
    assert again.load_part(1) is None
    found = again.load_part(3)
    assert found is not None
    assert found.keys() == kept.keys()
    assert all(torch.equal(found[name], kept[name]) and found[name].dtype == kept[name].dtype for name in kept)
    assert FileStore(tmp_path / "steps" / "wanda@0.75.safetensors", CPU).load_part(3) is None


def test_a_part_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path / "a.safetensors", CPU)
    store.save_part(0, {"one": torch.ones(1)})

    def dying(self: Path, target: Path) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(writing.Path, "replace", dying)
        with pytest.raises(SystemExit):
            store.save_part(0, {"two": torch.ones(1)})
        with pytest.raises(SystemExit):
            store.save_part(1, {"two": torch.ones(1)})
    assert list(store.load_part(0) or {}) == ["one"]
    assert store.load_part(1) is None
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "a.safetensors", CPU)
    store.save_part(2, tensors())
    path = next(tmp_path.rglob("2.safetensors"))
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(BrainsurgeonError, match=r"2\.safetensors is damaged .*delete it"):
        store.load_part(2)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = RunFolder.create(make_recipe(LAYERWISE), tmp_path_factory.mktemp("runs") / "whole")
    execute(run)
    return run


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_layerwise_run_that_dies_after_a_part_goes_on_from_there(
    tmp_path: Path, undisturbed: RunFolder, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Two methods of four parts each: the head (which holds none), two layers, and what lies between them."""
    run = RunFolder.create(make_recipe(LAYERWISE), tmp_path / "run")
    execute_until(run, store_module, moment, monkeypatch)
    assert any(run.steps.rglob("*.safetensors"))
    execute(run)
    assert outcome(run) == outcome(undisturbed)
    assert not run.steps.exists()


@pytest.mark.parametrize("moment", [1, 2, 4])
def test_a_gradual_run_that_dies_goes_on_from_the_last_state_that_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    monkeypatch.setattr(loop_module, "TOLD", -1.0)
    monkeypatch.setattr(run_module, "SAVED", -1.0)
    whole = RunFolder.create(make_recipe(GRADUAL), tmp_path / "whole")
    execute(whole)
    run = RunFolder.create(make_recipe(GRADUAL), tmp_path / "run")
    execute_until(run, store_module, moment, monkeypatch)
    execute(run)
    assert outcome(run) == outcome(whole)


def test_a_part_of_another_result_is_not_taken(tmp_path: Path) -> None:
    one, other = (FileStore(tmp_path / f"{name}.safetensors", CPU) for name in "ab")
    for number in (0, 1):
        one.save_part(number, tensors())
    other.save_part(0, tensors())
    first, second = (next(tmp_path.rglob(f"a.parts/{number}.safetensors")) for number in (0, 1))
    second.write_bytes(first.read_bytes())
    with pytest.raises(BrainsurgeonError, match="it holds part 0 of a"):
        one.load_part(1)
    next(tmp_path.rglob("b.parts/0.safetensors")).write_bytes(first.read_bytes())
    with pytest.raises(BrainsurgeonError, match="it holds part 0 of a"):
        other.load_part(0)
    assert one.load_part(0) is not None


@pytest.mark.parametrize("written", ["nan", "inf", "-5", "many", ""])
def test_seconds_that_are_none_do_not_count(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.seconds").write_text(written)
    assert FileStore(tmp_path / "a.safetensors", CPU).spent == 0.0
