"""Classes of atoms beside a partition by hand, and what cannot be removed."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.structured.atoms import NONE, Atoms, compact, flat_along, merged


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=15), st.sets(st.integers(1, 12)))
def test_classes_are_those_of_a_naive_partition(pairs: list[tuple[int, int]], fixed: set[int]) -> None:
    """However the unions come; a class is fixed where one of its atoms is."""
    atoms, naive = Atoms(), {k: {k} for k in range(1, 13)}
    labels = atoms.fresh(12)
    assert labels.tolist() == list(range(1, 13))
    for k in sorted(fixed)[::2]:
        atoms.fix(torch.tensor([k]), "before")
    for a, b in pairs:
        atoms.unite(torch.tensor([a]), torch.tensor([b]), "unused")
        whole = naive[a] | naive[b]
        for k in whole:
            naive[k] = whole
    for k in sorted(fixed)[1::2]:
        atoms.fix(torch.tensor([k]), "after")
    classes = atoms.classes(labels).tolist()
    for a in range(1, 13):
        assert {b for b in range(1, 13) if classes[b - 1] == classes[a - 1]} == naive[a]
        assert (atoms.reason(a) is not None) == bool(naive[a] & fixed)
        assert atoms.has_met(a) == any(a in pair for pair in pairs)


def test_what_meets_no_unit_is_fixed_with_the_first_reason() -> None:
    atoms = Atoms()
    labels = atoms.fresh(3)
    atoms.unite(labels, torch.tensor([0, 2, 0]), "it meets a constant")
    atoms.fix(labels, "later")
    assert [atoms.reason(k) for k in (1, 2, 3)] == ["it meets a constant", "later", "it meets a constant"]
    assert atoms.classes(torch.tensor([0, 1])).tolist() == [NONE, 1]


def test_labels_that_lie_expanded_are_read_once() -> None:
    labels = torch.arange(1, 4).view(1, 3, 1).expand(5, 3, 7)
    assert compact(labels).shape == (1, 3, 1)
    assert Atoms().classes(labels).shape == (5, 3, 7)


def test_an_axis_that_is_mixed_becomes_one_unit_and_the_others_stay() -> None:
    atoms = Atoms()
    labels = atoms.fresh(6).view(2, 3)
    assert flat_along(atoms, labels, [1], "mixed").tolist() == [[1], [4]]
    assert atoms.classes(labels).tolist() == [[1, 1, 1], [4, 4, 4]]
    assert atoms.varies(labels, 0)
    assert not atoms.varies(labels, 1)


def test_an_operand_with_a_part_in_every_unit_stays() -> None:
    """One gate for all channels is fixed; a gate for each goes with its channel."""
    atoms = Atoms()
    channels, gate, own = atoms.fresh(4).view(1, 4), atoms.fresh(1).view(1, 1), atoms.fresh(4)
    assert merged(atoms, channels, gate, "shared").tolist() == [[1, 2, 3, 4]]
    assert atoms.reason(5) == "shared"
    assert atoms.reason(1) is None
    assert merged(atoms, own, channels, "unused").shape == (1, 4)
    assert atoms.classes(own).tolist() == [1, 2, 3, 4]
