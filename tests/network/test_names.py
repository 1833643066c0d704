"""Names without the prefixes of wrappers, and the rules that mean them."""

import pytest
import torch
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.names import listed, name_matches, named_parameters, plain_names, unwrapped


def test_wrappers_are_looked_through_however_they_are_nested() -> None:
    inner = nn.Linear(3, 2)
    averaged = torch.optim.swa_utils.AveragedModel(inner)
    assert unwrapped(nn.DataParallel(torch.compile(inner))) is inner
    assert unwrapped(torch.compile(averaged)) is averaged.module
    own = nn.Module()
    own.module = inner  # a name that is the user's own
    assert unwrapped(own) is own
    with pytest.raises(BrainsurgeonError, match=r"must be a torch\.nn\.Module, got int"):
        unwrapped(3)  # type: ignore[arg-type]


def test_parameters_have_plain_names_and_shared_ones_all_of_theirs() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    model[0] = torch.compile(model[0])
    found = named_parameters(nn.DataParallel(model))
    assert list(found) == ["0.weight", "1.weight"]
    assert found["0.weight"] is found["1.weight"]


def test_module_is_a_prefix_only_where_every_name_has_it() -> None:
    assert plain_names({"module.a": 1, "module.b._orig_mod.c": 2}) == {"a": 1, "b.c": 2}
    assert plain_names({"module.a": 1, "b": 2}) == {"module.a": 1, "b": 2}
    assert plain_names({}) == {}
    with pytest.raises(BrainsurgeonError, match="two names are the same"):
        plain_names({"a._orig_mod.b": 1, "a.b": 2})


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        ("features", "features.0.weight", True),
        ("features", "features2.weight", False),
        ("features.*", "features.0.weight", True),
        ("*.0", "features.0.weight", True),
        ("*.bias", "features.0.weight", False),
        ("a[0].weight", "a[0].weight", True),
        ("Features", "features.0.weight", False),
    ],
)
def test_a_rule_means_a_name_a_pattern_or_what_lies_below(rule: str, name: str, expected: bool) -> None:
    assert name_matches(rule, name) is expected


def test_a_long_list_ends_with_how_many_more_there_are() -> None:
    assert listed("abc", 3) == "a, b, c"
    assert listed(iter("abcde"), 3) == "a, b, c and 2 more"
