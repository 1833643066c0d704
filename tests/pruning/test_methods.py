"""Names, pairs and settings of methods."""

import json

import pytest

from brainsurgeon.engine.selection import LocalSearch, Magnitude, Randomized, WideSearch, WoodFisher
from brainsurgeon.engine.update import Independent, Joint, Keep, Scaled
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.methods import NAMES, Method, make_method

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
    described = json.loads(json.dumps(make_method(name, {}).describe()))
    assert described["name"] == name
    assert {"kind"} <= described["selection"].keys()


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
    method = Method("mine", lambda problem: problem.weights > 0, lambda problem, pruned: problem.weights)
    assert method.uses_curvature
    assert "lambda" in json.dumps(method.describe())


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
        update = make_method(name, {}, scale).update
        assert isinstance(update, Scaled)
        assert update.scale == expected
        assert not isinstance(update.update, Scaled)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("cbss", "cbs-s"), ("mp+cbsu", r"mp\+cbs-u"), ("wf-s+obs", "wf-s"), ("algorithm", "algorithm1")],
)
def test_an_unknown_method_names_the_nearest_and_all(name: str, hint: str) -> None:
    with pytest.raises(BrainsurgeonError, match=rf"unknown method .* Did you mean '{hint}.*The methods are: mp, "):
        make_method(name, {})


def test_a_method_like_no_other_names_them_all() -> None:
    with pytest.raises(BrainsurgeonError, match=r"unknown method 'zzz'\. The methods are: "):
        make_method("zzz", {})


def test_an_unknown_setting_names_the_nearest_and_all() -> None:
    with pytest.raises(BrainsurgeonError, match=r"unknown setting 'windw' .*Did you mean 'window'\?.*num_draws"):
        make_method("algorithm1", {"windw": 3})
    with pytest.raises(BrainsurgeonError, match=r"unknown setting 'window' .*Its settings are: none"):
        make_method("mp", {"window": 3})
