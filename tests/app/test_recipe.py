"""Recipes: everything a run needs in one file, refused in words where it cannot be followed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from brainsurgeon.app.recipe import KEYS, RecipeError, make_recipe, read_recipe, read_value
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.methods import make_method
from brainsurgeon.pruning.one_shot import Examining, OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.schedule import Stages


def test_every_setting_of_an_examination_is_a_key_with_the_same_default() -> None:
    methods = make_recipe({"target": "demo", "method": ["cbs", "staged"]}).make_methods()
    assert methods == {"cbs": make_method("cbs"), "staged": make_method("staged")}
    assert isinstance(methods["cbs"], OneShot)
    assert methods["cbs"].examining == Examining()
    assert {field.name for field in dataclasses.fields(Examining)} < set(KEYS)
    assert {"schedule", "curvature", "max_gradients", "max_seconds", "max_samples"} < set(KEYS)


def test_what_is_written_back_is_the_same_recipe(tmp_path: Path) -> None:
    recipe = make_recipe(
        {
            "target": "demo",
            "sparsity": [0.5, 0.9],
            "method": ["mp", "cbs"],
            "budget": {"fc1*": 0.8},
            "dtype": "bfloat16",
            "damping": 1e-5,
            "options": {"num_draws": 7},
            "include": ["a.*", "b"],
        }
    )
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    assert make_recipe(read_recipe(path)) == recipe
    assert recipe.settings == {"dtype": "bfloat16", "damping": 1e-5}
    made = recipe.make_methods()["cbs"]
    assert isinstance(made, OneShot)
    assert (made.dtype, made.damping) == (torch.bfloat16, 1e-5)
    assert "dtype: bfloat16" in recipe.to_yaml().splitlines()  # settings of methods are keys like any other


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("target: demo\nsparsity: 0.8\ndamping: 1e-5\nmethod: [mp, wf]\n")
    (tmp_path / "a.toml").write_text('target = "demo"\nsparsity = 0.8\ndamping = 1e-5\nmethod = ["mp", "wf"]\n')
    assert read_recipe(tmp_path / "a.yaml") == read_recipe(tmp_path / "a.toml")
    assert read_recipe(tmp_path / "a.yaml")["damping"] == 1e-5


def test_files_are_looked_for_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("target: nets/own.py:build\ncheckpoint: w.safetensors\n")
    found = read_recipe(tmp_path / "a.yaml")
    assert found == {"target": f"{tmp_path}/nets/own.py:build", "checkpoint": f"{tmp_path}/w.safetensors"}


def test_options_go_to_the_methods_that_know_them() -> None:
    methods = make_recipe({"target": "demo", "method": ["mp", "cbs-s"], "options": {"pool": 9}}).make_methods()
    assert methods["cbs-s"].selection.pool == 9
    scaled = make_recipe({"target": "demo", "method": ["mp", "wf"], "update_scale": 0.5}).make_methods()
    assert scaled["wf"].update.scale == 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_gradient": 5}, "unknown key 'num_gradient'; did you mean 'num_gradients'?"),
        ({"zzz": 5}, "a selection's own settings go under `options`"),
        ({"sparsity": 1.5}, "sparsity should be less than 1.*got 1.5"),
        ({"sparsity": [0.5, "high"]}, "sparsity should be a valid number.*got"),
        ({"fisher": "true", "method": "cbs"}, 'fisher says which labels .*"sampled".* got .true'),
        ({"fisher": "exact", "method": "staged"}, "fisher belongs to one-shot methods: leave it out"),
        ({"num_gradients": "many", "method": "cbs"}, "num_gradients must be a whole number.*got 'many'"),
        ({"num_gradients": 0, "method": "cbs"}, "num_gradients must be a whole number of at least 1, got 0"),
        ({"num_gradients": 5}, "unknown setting 'num_gradients' for this method"),
        ({"method": "cbz"}, "unknown method 'cbz'"),
        ({"options": {"num_draw": 3}, "method": "cbs"}, "unknown setting 'num_draw'.*num_draws"),
        ({"dtype": "int8", "method": "cbs"}, "dtype must be float32, bfloat16"),
        ({"budget": "layer"}, "budget should be 'global'"),
        ({"update_scale": 0.5, "method": "mp"}, "nothing to scale"),
        ({"max_seconds": 60, "method": "cbs"}, "max_seconds belongs to methods in stages"),
        ({"max_seconds": -1, "method": "auto"}, "max_seconds must be positive"),
        ({"schedule": 0, "method": "cbs"}, "there must be at least 1 stage"),
        ({"schedule": {"stages": 3, "kind": "sudden"}, "method": "cbs"}, "kind must be one of"),
    ],
)
def test_what_cannot_be_followed_is_refused_in_words(values: dict, message: str) -> None:
    with pytest.raises(BrainsurgeonError, match=message):
        make_recipe({"target": "demo", **values})


def test_a_recipe_without_target_says_so() -> None:
    with pytest.raises(RecipeError, match="target is missing"):
        make_recipe({})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "a: [1", "not valid YAML"),
        ("a.toml", "a = ", "not valid TOML"),
        ("a.yaml", "- 1", "keys and values"),
        ("a.yaml", "a: !!python/object/apply:os.getcwd []", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RecipeError, match=message):
        read_recipe(tmp_path / name)
    with pytest.raises(RecipeError, match="there is no recipe"):
        read_recipe(tmp_path / "missing.yaml")


@pytest.mark.parametrize("method", ["mp", "layerwise", "gradual"])
def test_a_pattern_is_a_word_and_no_number_of_base_60(method: str) -> None:
    values = {"target": "demo", "method": method, "sparsity": 0.5}
    recipe = make_recipe({**values, "pattern": read_value("2:4")})
    assert str(next(iter(recipe.make_methods().values())).pattern) == "2:4"
    with pytest.raises(RecipeError, match="a pattern is a word"):
        make_recipe({**values, "pattern": 5})


def test_what_is_named_twice_is_tried_once() -> None:
    recipe = make_recipe({"target": "demo", "method": ["mp", "wf", "mp"], "sparsity": [0.9, 0.5, 0.9]})
    assert (recipe.methods, recipe.sparsities) == (["mp", "wf"], [0.9, 0.5])


def test_values_are_read_as_yaml() -> None:
    assert [read_value(text) for text in ("0.9", "1e-3", "[mp, cbs]", "true", "auto")] == [
        0.9,
        1e-3,
        ["mp", "cbs"],
        True,
        "auto",
    ]


def test_a_schedule_is_a_number_or_its_parts() -> None:
    def schedule(value: object) -> Stages:
        method = make_recipe({"target": "demo", "method": "mp", "schedule": value}).make_methods()["mp"]
        assert isinstance(method, Staged)
        return method.schedule

    number = schedule(4)
    assert (number.stages, number.refits) == (4, 4)
    parts = schedule({"stages": 3, "kind": "linear"})
    assert (parts.stages, parts.kind) == (3, "linear")
    with pytest.raises(RecipeError, match="unknown key 'stage'"):
        schedule({"stage": 3})
    assert isinstance(make_recipe({"target": "demo", "method": "staged"}).make_methods()["staged"], Staged)
    assert isinstance(make_recipe({"target": "demo", "method": "cbs"}).make_methods()["cbs"], OneShot)


def test_each_method_takes_the_settings_that_it_knows() -> None:
    made = make_recipe(
        {"target": "demo", "method": ["cbs", "staged"], "num_gradients": 50, "max_gradients": 5000, "blocks": "layer"}
    ).make_methods()
    cbs, staged = made["cbs"], made["staged"]
    assert isinstance(cbs, OneShot)
    assert isinstance(staged, Staged)
    assert (cbs.num_gradients, cbs.blocks, staged.max_gradients, staged.blocks) == (50, "layer", 5000, "layer")
