"""Names, pairs and settings of methods."""

import dataclasses
import json

import pytest

from brainsurgeon.engine.selection import LocalSearch, Magnitude, Randomized, WideSearch, WoodFisher
from brainsurgeon.engine.update import Independent, Joint, Keep, Scaled
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.methods import NAMES, describe, make_method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.schedule import Stages

PAPER = ["mp", "rmp", "wf-s", "wf", "cbs-s", "cbs", "mp+cbs-u", "wf-s+cbs-u"]


def inner(update: object) -> object:
    return update.update if isinstance(update, Scaled) else update


@pytest.mark.parametrize("name", PAPER)
def test_every_method_of_the_paper_has_its_name(name: str) -> None:
    assert name in NAMES
    assert make_method(name, {}).name == name


@pytest.mark.parametrize("name", NAMES)
def test_every_name_makes_a_method_that_describes_itself(name: str) -> None:
    """The description is plain data, for the record of a run."""
    described = json.loads(json.dumps(describe(make_method(name))))
    method = make_method(name)
    assert described["type"] == type(method).__name__
    assert described["name"] == name
    assert described.keys() - {"type"} == {field.name for field in dataclasses.fields(method)}
    parts = [described[key] for key in ("selection", "update", "solver", "plan") if key in described]
    assert parts or name == "auto"
    assert all("type" in part for part in parts)


@pytest.mark.parametrize(
    ("name", "selection", "update"),
    [
        ("mp", Magnitude, Keep),
        ("rmp", Randomized, Keep),
        ("wf-s", WoodFisher, Keep),
        ("wf", WoodFisher, Independent),
        ("mp+cbs-u", Magnitude, Joint),
        ("wf-s+cbs-u", WoodFisher, Joint),
        ("algorithm1", LocalSearch, Keep),
    ],
)
def test_a_name_means_its_selection_and_its_update(name: str, selection: type, update: type) -> None:
    method = make_method(name, {})
    assert isinstance(method.selection, selection)
    assert isinstance(inner(method.update), update)


def test_cbs_is_its_selection_and_the_joint_update() -> None:
    assert make_method("cbs", {}).selection == make_method("cbs-s", {}).selection
    assert isinstance(inner(make_method("cbs", {}).update), Joint)
    assert isinstance(make_method("cbs-s", {}).update, Keep)


@pytest.mark.parametrize(("name", "needed"), [("mp", False), ("rmp", False), ("wf-s", True), ("mp+cbs-u", True)])
def test_gradients_are_collected_only_where_they_are_used(name: str, needed: bool) -> None:
    assert make_method(name, {}).uses_curvature == needed


def test_a_pair_of_objects_is_a_method() -> None:
    method = make_method((Magnitude(), Joint()), {})
    assert (method.selection, method.update) == (Magnitude(), Joint())
    assert make_method(method, {}) == method


def test_callables_without_declarations_are_taken_to_need_everything() -> None:
    method = OneShot(lambda problem: problem.weights > 0, lambda problem, pruned: problem.weights, name="mine")
    assert method.uses_curvature
    assert "lambda" in json.dumps(describe(method))


def test_settings_reach_the_selection_or_the_one_it_starts_from() -> None:
    selection = make_method("algorithm1", {"window": 3, "num_draws": 7}).selection
    assert isinstance(selection, LocalSearch)
    assert isinstance(selection.start, Randomized)
    assert (selection.window, selection.start.num_draws) == (3, 7)
    nested = make_method((WideSearch(LocalSearch(Randomized())), Keep()), {"num_buckets": 5}).selection
    assert nested.start.start.num_buckets == 5  # type: ignore[attr-defined]


def test_settings_do_not_change_the_object_they_were_given() -> None:
    search = LocalSearch()
    window = search.window
    make_method((search, Keep()), {"window": window + 1})
    assert search.window == window


@pytest.mark.parametrize(("scale", "expected"), [(0.4, 0.4), ("auto", "auto")])
def test_the_scale_of_an_update_can_be_given(scale: float | str, expected: float | str) -> None:
    for name in ("wf", "mp+cbs-u"):
        update = make_method(name, {"update_scale": scale}).update
        assert isinstance(update, Scaled)
        assert update.scale == expected
        assert not isinstance(update.update, Scaled)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("cbss", "cbs-s"), ("mp+cbsu", r"mp\+cbs-u"), ("wf-s+obs", "wf-s"), ("algorithm", "algorithm1")],
)
def test_an_unknown_method_names_the_nearest_and_all(name: str, hint: str) -> None:
    with pytest.raises(
        BrainsurgeonError, match=rf"unknown method .* Did you mean '{hint}.*The methods are: auto, .*mp, "
    ):
        make_method(name, {})


def test_a_method_like_no_other_names_them_all() -> None:
    with pytest.raises(BrainsurgeonError, match=r"unknown method 'zzz'\. The methods are: "):
        make_method("zzz", {})


def test_an_unknown_setting_names_the_nearest_and_all() -> None:
    with pytest.raises(BrainsurgeonError, match=r"unknown setting 'windw' .*Did you mean 'window'\?.*num_draws"):
        make_method("algorithm1", {"windw": 3})
    with pytest.raises(
        BrainsurgeonError, match=r"unknown setting 'window' .*Its settings are: blocks, certifiable, damping, "
    ):
        make_method("mp", {"window": 3})


def test_a_schedule_makes_any_method_a_staged_one() -> None:
    for name in ("cbs", "mp", "wf", "rmp+cbs-u"):
        one, staged = make_method(name), make_method(name, {"schedule": 3})
        assert isinstance(staged, Staged)
        assert (staged.selection, staged.rivals, staged.name) == (one.selection, one.rivals, name)
        assert staged.update == inner(one.update)
        assert (staged.schedule.stages, staged.schedule.refits) == (3, 3)
    assert isinstance(make_method("staged"), Staged)
    assert isinstance(make_method((Magnitude(), Joint()), {"schedule": Stages(2)}), Staged)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("cbs", {"max_seconds": 5.0}, "max_seconds belongs to methods in stages: give a schedule"),
        ("cbs", {"curvature": "gram"}, "curvature belongs to methods in stages: give a schedule"),
        ("staged", {"num_gradients": 5}, "num_gradients belongs to one-shot methods: leave it out"),
        ("cbs", {"schedule": 2, "damping": 1e-3}, "damping belongs to one-shot methods"),
        ("staged", {"update_scale": 0.5}, "update_scale belongs to one-shot methods"),
        ("mp", {"update_scale": 0.5}, "update_scale=0.5 has nothing to scale: method 'mp' has no update"),
        ("staged", {"stage": 5}, "unknown setting 'stage' for this method"),
    ],
)
def test_a_setting_of_another_kind_of_method_says_which(method: str, settings: dict, message: str) -> None:
    with pytest.raises(BrainsurgeonError, match=message):
        make_method(method, settings)


def test_settings_of_none_are_left_at_their_defaults_unless_they_mean_something() -> None:
    assert make_method("cbs", {"max_seconds": None, "num_draws": None}) == make_method("cbs")
    staged = make_method("staged", {"max_seconds": 5.0})
    assert make_method(staged, {"max_seconds": None}).max_seconds is None  # type: ignore[union-attr]


def test_a_method_of_ones_own_takes_settings_too() -> None:
    mine = OneShot(Magnitude(), Joint(), name="mine", damping=0.5)
    changed = make_method(mine, {"num_gradients": 7})
    assert changed == dataclasses.replace(mine, num_gradients=7)
    assert mine.num_gradients == 1000
